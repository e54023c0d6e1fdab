"""Views inside proxies of wrapt, such as those of Datadog's and New Relic's tracers."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, connections
from django.urls import path
from rest_framework.response import Response
from rest_framework.views import APIView
from wrapt import FunctionWrapper

from django_idempotency.rest_framework import IdempotentViewMixin

from .conftest import Connect, effects
from .outcome_views import Pay, pay, write

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
]


def call(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    """Call what a proxy is around, as a tracer does, and check nothing."""
    return wrapped(*args, **kwargs)


class Rest(APIView):
    fails = False

    def post(self, request: Any) -> Response:
        write()
        if self.fails:
            raise LookupError
        return Response({"in_transaction": connection.in_atomic_block}, status=201)


class Guarded(IdempotentViewMixin, Rest):
    pass


urlpatterns = [
    path("function/", pay),
    path("proxy/", FunctionWrapper(pay, call)),
    path("proxies/", FunctionWrapper(FunctionWrapper(pay, call), call)),
    path("proxy-of-a-class/", FunctionWrapper(Pay.as_view(), call)),
    path("around-rest/", FunctionWrapper(Rest.as_view(), call)),
    path("mixin/", FunctionWrapper(Guarded.as_view(), call)),
    path("mixin/failing/", FunctionWrapper(Guarded.as_view(fails=True), call)),
]


@pytest.mark.parametrize("name", ["proxy", "proxies", "proxy-of-a-class"])
def test_a_proxy_may_check(user: User, connect: Connect, name: str) -> None:
    """What it checks is not known, so nothing is replayed."""
    send = connect(f"/{name}/", user)
    assert [send().status_code, send().json()["code"], effects()] == [201, "replay-unchecked", 1]


def test_what_is_known_of_a_view_is_not_said_of_its_proxy(user: User, connect: Connect) -> None:
    """They are equal: that the view was replayed proves nothing of the proxy."""
    assert [connect("/function/", user)()["Idempotency-Status"] for _ in range(2)] == [
        "created",
        "replayed",
    ]
    send = connect("/proxy/", user)
    assert [send(key="another").status_code, send(key="another").json()["code"]] == [
        201,
        "replay-unchecked",
    ]


def test_a_proxy_around_rest_framework(user: User, connect: Connect) -> None:
    """It is not skipped: a request with a key raises, and nothing has run."""
    send = connect("/around-rest/", user)
    send.client.raise_request_exception = True
    with pytest.raises(ImproperlyConfigured, match="inside another decorator"):
        send()
    assert effects() == 0


@pytest.mark.parametrize("keys", [(None, None), ("first", "second")])
def test_atomic_requests(
    user: User,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
    keys: tuple[str | None, str | None],
) -> None:
    """A view with the mixin is in the transaction that Django has begun, whatever proxy Django has
    called.
    """
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", True)
    send = connect("/mixin/", user)
    assert send(key=keys[0]).json() == {"in_transaction": True}
    assert (send(key=keys[1], url="/mixin/failing/").status_code, effects()) == (500, 1)
