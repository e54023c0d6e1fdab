"""Several stores in one site: each route remembers in its own."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import Client
from django.urls import path
from pytest_django import Settings
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import Policy, idempotent
from django_idempotency.models import IdempotencyRecord
from django_idempotency.rest_framework import IdempotentViewMixin
from tests.functions.helpers import MEMORY, ORM

from . import views
from .conftest import KEY, effects

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
]

#: Alias of a store → what its route promises. No two share a record.
TERMS: dict[str, Any] = {
    "default": {"guarantee": "atomic"},
    "one": {"guarantee": "lease"},
    "other": {"guarantee": "lease"},
}


def pay(request: HttpRequest, alias: str) -> HttpResponse:
    return JsonResponse({"id": views.work(), "alias": alias}, status=201)


def paying(policy: Policy) -> Any:
    class Paying(IdempotentViewMixin, APIView):
        idempotency = policy

        def post(self, request: Request, alias: str) -> Response:
            return Response({"id": views.work(), "alias": alias}, status=201)

    return Paying.as_view()


urlpatterns = [
    route
    for alias, terms in TERMS.items()
    for route in (
        path(f"decorator/{alias}/", idempotent(store=alias, **terms)(pay), {"alias": alias}),
        path(f"mixin/{alias}/", paying(Policy(store=alias, **terms)), {"alias": alias}),
    )
]


@pytest.mark.parametrize("entry_point", ["decorator", "mixin"])
def test_one_key_for_several_stores(entry_point: str, user: User, settings: Settings) -> None:
    """The same key of the same user runs once in each store, and each replays its own response."""
    settings.IDEMPOTENCY = {"STORES": {"default": ORM, "one": MEMORY, "other": MEMORY}}
    client = Client()
    client.force_login(user)

    def send(alias: str) -> Any:
        headers = {"Idempotency-Key": KEY}
        return client.post(
            f"/{entry_point}/{alias}/", "{}", content_type="application/json", headers=headers
        )

    first = {alias: send(alias) for alias in TERMS}
    assert {alias: (each.status_code, each.json()["alias"]) for alias, each in first.items()} == {
        alias: (201, alias) for alias in TERMS
    }
    again = {alias: send(alias) for alias in reversed(TERMS)}
    for alias, answer in again.items():
        assert (answer["Idempotent-Replayed"], answer.content) == ("true", first[alias].content)
    assert effects() == len(TERMS)
    assert IdempotencyRecord.objects.count() == 1
