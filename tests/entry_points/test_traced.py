"""Views inside the proxies of tracers, such as Datadog's and New Relic's, which check no access;
and inside other proxies.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

import pytest
from django.contrib.auth.decorators import permission_required
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, connections
from django.urls import path
from django.views import View
from rest_framework.response import Response
from rest_framework.views import APIView
from wrapt import FunctionWrapper

from django_idempotency.rest_framework import IdempotentViewMixin
from testproject.payments.models import Charge
from tests.support.factories import grant

from .conftest import Connect, effects
from .outcome_views import Pay, pay, write

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
]


def calling(module: str) -> Any:
    """Return the function of a wrapper, as written in a module."""
    namespace: dict[str, Any] = {"__name__": module}
    exec(
        "def call(wrapped, instance, args, kwargs):\n    return wrapped(*args, **kwargs)", namespace
    )
    return namespace["call"]


TRACES, UNKNOWN = calling("ddtrace.contrib.internal.trace_utils"), calling("shop.proxies")


class ViewProxy(FunctionWrapper):
    """As Datadog's, which names the module of its target."""

    @property
    def __module__(self) -> str:  # type: ignore[override]
        return str(self.__wrapped__.__module__)


def traced(view: Any) -> Any:
    """Wrap a view twice, and replace its code object, as Datadog does."""
    function: FunctionType = getattr(view, "func", view)
    function.__code__ = function.__code__.replace(co_firstlineno=1)
    return ViewProxy(FunctionWrapper(view, TRACES), TRACES)


class TracedPay(Pay):
    dispatch = FunctionWrapper(View.dispatch, TRACES)


class Rest(APIView):
    fails = False

    def post(self, request: Any) -> Response:
        write()
        if self.fails:
            raise LookupError
        return Response({"in_transaction": connection.in_atomic_block}, status=201)


class Guarded(IdempotentViewMixin, Rest):
    pass


VIEWS = {
    "function": traced(pay),
    "permitted": traced(permission_required("payments.add_charge", raise_exception=True)(pay)),
    "class": traced(Pay.as_view()),
    "dispatch": traced(TracedPay.as_view()),
    "rest": traced(Rest.as_view()),
}
PROXIES = {"traced": TRACES, "unknown": UNKNOWN}

urlpatterns = [
    *(path(f"{name}/", view) for name, view in VIEWS.items()),
    path("unknown/", FunctionWrapper(pay, UNKNOWN)),
    path("unknown-inside/", FunctionWrapper(FunctionWrapper(pay, UNKNOWN), TRACES)),
    path("unknown-around-rest/", FunctionWrapper(Rest.as_view(), UNKNOWN)),
    *(
        path(f"mixin/{name}/", FunctionWrapper(Guarded.as_view(), call))
        for name, call in PROXIES.items()
    ),
    *(
        path(f"mixin/{name}/failing/", FunctionWrapper(Guarded.as_view(fails=True), call))
        for name, call in PROXIES.items()
    ),
]


@pytest.mark.parametrize("name", [name for name in VIEWS if name != "permitted"])
def test_a_tracers_proxy_changes_nothing(user: User, connect: Connect, name: str) -> None:
    """Under the middleware the view is guarded, and its response replayed."""
    send = connect(f"/{name}/", user)
    assert [send().status_code, send()["Idempotent-Replayed"], effects()] == [201, "true", 1]


def test_a_check_inside_is_asked_again(user: User, connect: Connect) -> None:
    grant(user, Charge, "add_charge")
    send = connect("/permitted/", user)
    assert [send().status_code, send()["Idempotent-Replayed"]] == [201, "true"]
    user.user_permissions.clear()
    assert (send().json()["code"], effects()) == ("replay-refused", 1)


@pytest.mark.parametrize("name", ["unknown", "unknown-inside"])
def test_any_other_proxy_may_check(user: User, connect: Connect, name: str) -> None:
    """What it checks is not known, so nothing is replayed."""
    send = connect(f"/{name}/", user)
    assert [send().status_code, send().json()["code"], effects()] == [201, "replay-unchecked", 1]


def test_what_is_known_of_one_proxy_is_not_said_of_another(user: User, connect: Connect) -> None:
    """Proxies around one view are equal, and equal to the view: that one was replayed through
    proves nothing of another.
    """
    assert [connect("/function/", user)()["Idempotency-Status"] for _ in range(2)] == [
        "created",
        "replayed",
    ]
    send = connect("/unknown/", user)
    assert [send(key="another").status_code, send(key="another").json()["code"]] == [
        201,
        "replay-unchecked",
    ]


def test_any_other_proxy_around_rest_framework(user: User, connect: Connect) -> None:
    """It is not skipped: a request with a key raises, and nothing has run."""
    send = connect("/unknown-around-rest/", user)
    send.client.raise_request_exception = True
    with pytest.raises(ImproperlyConfigured, match="inside another decorator"):
        send()
    assert effects() == 0


@pytest.mark.parametrize("name", PROXIES)
@pytest.mark.parametrize("keys", [(None, None), ("first", "second")])
def test_atomic_requests(
    user: User,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    keys: tuple[str | None, str | None],
) -> None:
    """A view with the mixin is in the transaction that Django has begun, whatever proxy Django has
    called.
    """
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", True)
    send = connect(f"/mixin/{name}/", user)
    assert send(key=keys[0]).json() == {"in_transaction": True}
    assert (send(key=keys[1], url=f"/mixin/{name}/failing/").status_code, effects()) == (500, 1)
