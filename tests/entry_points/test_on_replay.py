"""`OnReplay` makes what a replay sends of the stored response: by any entry point, and marked as
any replay is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.test import RequestFactory, override_settings
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import OnReplay, Policy, idempotent
from django_idempotency.contrib.dialects import PayPal
from django_idempotency.contrib.publishing.policies import published
from django_idempotency.errors import ConfigurationError, ReplayRefused
from django_idempotency.http.responses import render
from django_idempotency.rest_framework import IdempotentViewMixin
from django_idempotency.runtime.registry import stores

SETTINGS = {
    "STORES": {"default": {"BACKEND": "django_idempotency.stores.memory.MemoryStore"}},
    "GUARANTEE": "lease",
}
FACTORY = RequestFactory()
#: What became of the order since.
STATE = {"status": "CREATED"}
Send = Callable[[], Any]


@pytest.fixture(autouse=True)
def in_memory() -> Iterator[None]:
    STATE["status"] = "CREATED"
    with override_settings(IDEMPOTENCY=SETTINGS):
        stores["default"]._records.clear()  # type: ignore[attr-defined]
        yield


def as_it_is_now(request: Any, response: HttpResponse) -> HttpResponse:
    return JsonResponse({**json.loads(response.content), **STATE}, status=response.status_code)


def as_data(request: Any, response: HttpResponse) -> Response:
    return Response({**json.loads(response.content), **STATE}, status=response.status_code)


def posted(key: str = "k") -> HttpRequest:
    headers = {"PayPal-Request-Id": key, "X-Request-ID": "req-1"}
    return FACTORY.post("/", {"amount": 5}, "application/json", headers=headers)


def terms(on_replay: Any, **given: Any) -> dict[str, Any]:
    extensions = [OnReplay(on_replay)]
    scope = lambda request: "client"  # noqa: E731
    return {"profile": PayPal(), "scope": scope, "extensions": extensions, **given}


def plain(on_replay: Any, **given: Any) -> Send:
    view = idempotent(**terms(on_replay, **given))(
        lambda request: JsonResponse({"id": 1, **STATE}, status=201)
    )
    return lambda: view(posted())


def asynchronous(on_replay: Any, **given: Any) -> Send:
    @idempotent(**terms(on_replay, **given))
    async def view(request: HttpRequest) -> HttpResponse:
        return JsonResponse({"id": 1, **STATE}, status=201)

    return lambda: async_to_sync(view)(posted())


def rest(on_replay: Any, **given: Any) -> Send:
    class View(IdempotentViewMixin, APIView):
        authentication_classes = ()
        permission_classes = ()
        idempotency = Policy(**terms(on_replay, **given))

        def post(self, request: Request) -> Response:
            return Response({"id": 1, **STATE}, status=201)

    def send() -> Any:
        response = View.as_view()(posted())
        render(response)
        return response

    return send


def unrendered(on_replay: Any, **given: Any) -> Send:
    """Return a view of REST framework whose hook returns that framework's response."""
    return rest(as_data if on_replay is as_it_is_now else on_replay, **given)


@pytest.mark.parametrize("entry", [plain, asynchronous, rest, unrendered])
def test_a_replay_has_the_current_state(entry: Callable[[Any], Send]) -> None:
    """The hook's body, the profile's status, and the marks of a replay; each retry asks anew."""
    send = entry(as_it_is_now)
    first = send()
    assert (first.status_code, json.loads(first.content)["status"]) == (201, "CREATED")
    for status in ("APPROVED", "COMPLETED"):
        STATE["status"] = status
        replay = send()
        assert json.loads(replay.content) == {"id": 1, "status": status}
        assert replay.status_code == 200
        assert (replay["Idempotent-Replayed"], replay["Idempotency-Status"]) == ("true", "replayed")
        assert replay["Original-Request"] == "req-1"


@pytest.mark.parametrize("entry", [plain, asynchronous, rest])
def test_it_may_leave_the_response(entry: Callable[[Any], Send]) -> None:
    """The stored response, returned as it came, is a replay like any other."""
    send = entry(lambda request, response: response)
    send()
    STATE["status"] = "COMPLETED"
    replay = send()
    assert (json.loads(replay.content)["status"], replay["Idempotent-Replayed"]) == (
        "CREATED",
        "true",
    )


@pytest.mark.parametrize("entry", [plain, asynchronous])
def test_what_it_raises_is_raised(entry: Callable[[Any], Send]) -> None:
    """As what the view raises; the record stays."""

    def gone(request: Any, response: HttpResponse) -> HttpResponse:
        raise Http404

    send = entry(gone)
    send()
    for _ in range(2):
        with pytest.raises(Http404):
            send()


def test_what_is_no_response() -> None:
    """It says what to return."""
    send = plain(lambda request, response: {"id": 1})
    send()
    with pytest.raises(ConfigurationError, match="OnReplay: the function returned"):
        send()


def test_the_client_may_have_lost_its_access() -> None:
    """`authorize_replay` comes first: nothing is looked up for a client that may not see it."""
    asked: list[Any] = []
    send = rest(lambda *given: asked.append(given), authorize_replay=lambda request, outcome: False)
    send()
    assert send().status_code == ReplayRefused.status
    assert asked == []


def test_it_is_published() -> None:
    """Clients are told that a replay may differ from the first response, and how."""
    assert published(Policy(profile=PayPal(), extensions=[OnReplay(as_it_is_now)]))["replays"] == {
        "marker": {"name": "Idempotent-Replayed", "value": "true"},
        "statuses": {"201": 200},
        "body": "current",
    }
    assert published(Policy())["replays"]["body"] == "first"


@pytest.mark.parametrize(
    ("fingerprint", "compared"),
    [
        ("request", "request"),
        ("raw", "request"),
        ("headers", "headers"),
        ("body.amount", "selected"),
        (bytes, "selected"),
    ],
)
def test_what_is_compared_is_published(fingerprint: Any, compared: str) -> None:
    """Clients are told what must stay as it was."""
    assert published(Policy(fingerprint=fingerprint))["compared"] == compared
