"""A failing Redis front, seen by a client: one response, one effect, never a 500; and `atomic` is
kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import Client
from django.urls import path
from pytest_django import Settings
from redis import Redis
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import Policy
from django_idempotency.core.records import Status
from django_idempotency.models import IdempotencyRecord
from django_idempotency.rest_framework import IdempotentViewMixin
from django_idempotency.runtime.registry import stores
from tests.functions.helpers import ORM
from tests.support.services import needs_redis
from tests.support.store_servers import RedisServer, running

from . import views
from .conftest import KEY, effects

pytestmark = [
    needs_redis,
    pytest.mark.faults,
    pytest.mark.either_server,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
]

#: What views do while they run.
MEANWHILE: list[Callable[[], None]] = []


def work() -> dict[str, str]:
    done = {"id": views.work()}
    for act in MEANWHILE:
        act()
    return done


def fail() -> None:
    raise LookupError("the view failed")


def pay(request: HttpRequest) -> HttpResponse:
    return JsonResponse(work(), status=201)


class Paying(IdempotentViewMixin, APIView):
    idempotency = Policy()

    def post(self, request: Request) -> Response:
        return Response(work(), status=201)


urlpatterns = [path("middleware/", pay), path("mixin/", Paying.as_view())]


@pytest.fixture
def server(tmp_path: Path, settings: Settings) -> Iterator[RedisServer]:
    """The front's server, and the settings of a site that uses it."""
    MEANWHILE.clear()
    with running(RedisServer(tmp_path)) as server:
        settings.CACHES = {
            "default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": server.url}
        }
        settings.IDEMPOTENCY = {
            "STORES": {
                "default": {
                    "BACKEND": "django_idempotency.stores.layered.LayeredStore",
                    "OPTIONS": {"front": "redis", "authority": "orm"},
                },
                "orm": ORM,
                "redis": {
                    "BACKEND": "django_idempotency.stores.redis.RedisStore",
                    "OPTIONS": {"timeout": 1},
                },
            }
        }
        yield server
        stores["redis"].close()


@pytest.fixture(params=["middleware", "mixin"])
def send(request: pytest.FixtureRequest, user: User) -> Callable[..., Any]:
    client = Client(raise_request_exception=False)
    client.force_login(user)

    def send() -> Any:
        headers = {"Idempotency-Key": KEY}
        return client.post(
            f"/{request.param}/", "{}", content_type="application/json", headers=headers
        )

    return send


@pytest.mark.parametrize("trouble", ["flush", "freeze", "kill", "restart"])
@pytest.mark.parametrize("moment", ["before", "during", "after"])
def test_trouble(server: RedisServer, send: Callable[..., Any], trouble: str, moment: str) -> None:
    """The client gets the first response, then its replay, from the front or from the table."""
    act = getattr(server, trouble)
    if moment == "before":
        MEANWHILE.append(fail)
        assert send().status_code == 500  # connected; and the key is free again
        MEANWHILE.clear()
        act()
    elif moment == "during":
        MEANWHILE.append(act)
    first = send()
    MEANWHILE.clear()
    if moment == "after":
        with Redis(port=server.port) as client:
            assert client.dbsize() == 1  # the front has it
        act()
    replays = [send() for _ in range(3)]
    assert first.status_code == 201
    assert [(each.content, each["Idempotent-Replayed"]) for each in replays] == [
        (first.content, "true")
    ] * 3
    assert effects() == 1
    record = IdempotencyRecord.objects.get()
    assert (record.status, record.guarantee) == (Status.COMPLETED, "atomic")


@pytest.mark.parametrize("trouble", ["flush", "freeze", "kill", "restart"])
def test_a_view_that_fails_meanwhile(
    server: RedisServer, send: Callable[..., Any], trouble: str
) -> None:
    """What the view wrote is rolled back, with or without the front; the retry runs, and is
    remembered.
    """
    MEANWHILE.extend([getattr(server, trouble), fail])
    assert send().status_code == 500  # the view's own
    assert effects() == 0
    MEANWHILE.clear()
    assert send().status_code == 201
    assert send()["Idempotent-Replayed"] == "true"
    assert effects() == 1
