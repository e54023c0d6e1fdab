"""Requests to guarded routes, counted by client program: only listed names are labels, with a key
or without.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from asgiref.sync import async_to_sync
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import AsyncClient, Client
from django.urls import path
from pytest_django import Settings

from django_idempotency import idempotent
from django_idempotency.contrib.metrics.clients import ClientsMiddleware

from ...support.meters import RecordingMeter, installed

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
]

OURS = "django_idempotency.middleware.IdempotencyMiddleware"
PLAIN = "django_idempotency.contrib.metrics.clients.ClientsMiddleware"
KEY = {"Idempotency-Key": "a-key-that-is-long-enough"}


class Partners(ClientsMiddleware):
    known: ClassVar[frozenset[str]] = ClientsMiddleware.known | {"acme-till"}


class ByApiKey(ClientsMiddleware):
    def client_of(self, request: HttpRequest) -> str:
        return {"k-1": "acme"}.get(request.headers.get("X-Api-Key", ""), "other")


class Broken(ClientsMiddleware):
    def client_of(self, request: HttpRequest) -> str:
        raise LookupError(request.path)


@idempotent(anonymous="shared")
def optional(request: HttpRequest) -> HttpResponse:
    return JsonResponse({})


@idempotent(anonymous="shared", required=True)
def required(request: HttpRequest) -> HttpResponse:
    return JsonResponse({})


@idempotent(scope=lambda request: "one", key="body.order")
def selected(request: HttpRequest) -> HttpResponse:
    return JsonResponse({})


@idempotent(anonymous="shared", guarantee="lease")
async def waiting(request: HttpRequest) -> HttpResponse:
    return JsonResponse({})


def bare(request: HttpRequest) -> HttpResponse:
    return JsonResponse({})


VIEWS = (optional, required, selected, waiting, bare)
urlpatterns = [path(f"{view.__name__}/", view) for view in VIEWS]


@pytest.fixture
def meter() -> Iterator[RecordingMeter]:
    made = RecordingMeter()
    with installed(made):
        yield made


@pytest.fixture(autouse=True)
def _middleware(settings: Settings) -> None:
    settings.MIDDLEWARE = [PLAIN]


def post(name: str, agent: str = "okhttp/4.12.0", **headers: str) -> Any:
    sent = {"User-Agent": agent, **headers}
    return Client().post(
        f"/{name}/", '{"order": "o-1-and-long-enough"}', "application/json", headers=sent
    )


def counted(meter: RecordingMeter) -> list[tuple[str, ...]]:
    found = meter.labels("client.requests")
    meter.recorded.clear()
    return found


def test_with_a_key_and_without(meter: RecordingMeter) -> None:
    """Each request once: one that runs, a replay, one that is refused, and one whose key is in its
    body.
    """
    assert post("optional").status_code == 200
    assert post("optional", **KEY).status_code == post("optional", **KEY).status_code == 200
    assert counted(meter) == [
        ("okhttp", "optional/", "none"),
        *[("okhttp", "optional/", "sent")] * 2,
    ]
    assert (
        post("required").status_code,
        post("required", **{"Idempotency-Key": "a, b"}).status_code,
    ) == (400, 400)
    assert counted(meter) == [("okhttp", "required/", "none"), ("okhttp", "required/", "sent")]
    post("selected")
    assert counted(meter) == [("okhttp", "selected/", "sent")]


@pytest.mark.parametrize(
    ("agent", "client"),
    [
        ("python-requests/2.32.3", "python-requests"),
        ("Mozilla/5.0 (X11; Linux x86_64)", "mozilla"),
        ("Go-http-client/2.0", "go-http-client"),
        ("acme-till/7", "other"),
        ("okhttp4", "other"),
        ("(okhttp)", "other"),
        ("", "other"),
        ("a" * 5000, "other"),
    ],
)
def test_the_name(agent: str, client: str, meter: RecordingMeter) -> None:
    """The first product of User-Agent without its version, if it is listed: what a client makes up
    is no series.
    """
    post("optional", agent)
    assert counted(meter) == [(client, "optional/", "none")]


@pytest.mark.parametrize(
    ("middleware", "headers", "client"),
    [
        ("Partners", {"User-Agent": "Acme-Till/7"}, "acme-till"),
        ("ByApiKey", {"X-Api-Key": "k-1"}, "acme"),
    ],
)
def test_a_project_names_its_own(
    middleware: str, headers: dict[str, str], client: str, settings: Settings, meter: RecordingMeter
) -> None:
    """By their programs, or by whatever it knows them by."""
    settings.MIDDLEWARE = [f"{__name__}.{middleware}"]
    Client().post("/optional/", headers=headers)
    assert counted(meter) == [(client, "optional/", "none")]


def test_what_is_not_counted(meter: RecordingMeter) -> None:
    """A request that no guard has counted: a safe one, or one to another view."""
    Client().get("/optional/")
    post("bare")
    assert counted(meter) == []


@pytest.mark.parametrize("middleware", [[PLAIN, OURS], [OURS, PLAIN]])
def test_beside_the_middleware_that_guards(
    middleware: list[str], settings: Settings, meter: RecordingMeter
) -> None:
    """On either side of it; its views are guarded ones."""
    settings.MIDDLEWARE = middleware
    settings.IDEMPOTENCY = {"ANONYMOUS": "shared"}
    with installed(meter):
        post("bare")
        post("bare", **KEY)
    assert counted(meter) == [("okhttp", "bare/", "none"), ("okhttp", "bare/", "sent")]


def test_async(meter: RecordingMeter) -> None:
    """Of an async view under an async handler."""
    for headers in ({}, KEY):
        async_to_sync(AsyncClient().post)("/waiting/", headers={"User-Agent": "undici", **headers})
    assert counted(meter) == [("undici", "waiting/", "none"), ("undici", "waiting/", "sent")]


@pytest.mark.parametrize("name", ["optional", "waiting"])
def test_a_name_that_cannot_be_found(
    name: str, settings: Settings, meter: RecordingMeter, caplog: pytest.LogCaptureFixture
) -> None:
    """The request was carried out: its response is sent, and the log has what went wrong."""
    settings.MIDDLEWARE = [f"{__name__}.Broken"]
    assert post(name, **KEY).status_code == 200
    assert "was not counted by its client" in caplog.text


def test_without_a_meter() -> None:
    """Nothing is counted, and nothing fails."""
    assert post("optional").status_code == 200
