"""A host per tenant: one database, one set of users, and a realm that keeps their keys apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.test import Client
from pytest_django import Settings

from django_idempotency import realm
from django_idempotency.models import IdempotencyRecord
from testproject.payments.models import Effect
from tests.support.services import REDIS, needs_redis

from .tenants import FRONTS, behind, send

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("tests.proofs.neighbours.tenants"),
]

A, B = "a.localhost", "b.localhost"


def realms(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """The middleware of the how-to, as a function."""

    def respond(request: HttpRequest) -> HttpResponse:
        with realm(request.get_host().lower()):
            return get_response(request)

    return respond


@pytest.fixture(params=[*FRONTS[:2], pytest.param(FRONTS[2], marks=needs_redis)])
def shop(request: pytest.FixtureRequest, settings: Settings) -> Callable[..., None]:
    """Return a function that sets the shop's terms."""
    settings.ALLOWED_HOSTS = [".localhost"]
    settings.CACHES = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": REDIS}}

    def opens(**terms: Any) -> None:
        settings.IDEMPOTENCY = {"STORES": behind(request.param), **terms}

    return opens


@pytest.mark.parametrize("where", ["pay", "order"])
def test_hosts(shop: Callable[..., None], settings: Settings, user: User, where: str) -> None:
    """Without a realm the second tenant gets the first one's response, uncharged; with a realm each
    has its own.
    """

    def sent(*hosts: str) -> list[tuple[str, bool]]:
        client = Client()  # a new one, since it keeps the middleware that it has loaded
        client.force_login(user)
        return [send(client, where, host) for host in hosts]

    shop()
    assert [iban for iban, _ in sent(A, B)] == [f"that of {user.pk} of {A}"] * 2  # they meet
    assert Effect.objects.count() == 1

    ways: list[tuple[dict[str, Any], list[str]]] = [
        ({"REALM": "django_idempotency.contrib.tenants.host"}, settings.MIDDLEWARE),
        ({}, [f"{__name__}.realms", *settings.MIDDLEWARE]),
    ]
    for terms, settings.MIDDLEWARE in ways:
        IdempotencyRecord.objects.all().delete()
        Effect.objects.all().delete()
        shop(**terms)
        assert sent(A, B, A, B) == [
            (f"that of {user.pk} of {host}", replayed)
            for replayed in (False, True)
            for host in (A, B)
        ]
        assert sorted(Effect.objects.values_list("label", flat=True)) == [A, B]
        assert set(IdempotencyRecord.objects.values_list("scope", flat=True)) == {
            f"realm:{host}/user:auth.user:{user.pk}" for host in (A, B)
        }
