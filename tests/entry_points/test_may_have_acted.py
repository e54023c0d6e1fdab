"""`may_have_acted`: what a work that acts elsewhere asks first, and where nothing may be said of
it.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from rest_framework.authentication import SessionAuthentication
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import Policy, idempotent, idempotent_function
from django_idempotency.core.records import Record, Ticket
from django_idempotency.errors import ConfigurationError, StoreUnavailable
from django_idempotency.functions import current_operation
from django_idempotency.rest_framework import IdempotentViewMixin
from django_idempotency.runtime.registry import stores
from django_idempotency.stores.orm import ORMStore
from django_idempotency.testing import override_idempotency

from .conftest import Connect, Sender

pytestmark = [pytest.mark.any_database, pytest.mark.urls(__name__)]
committed = pytest.mark.django_db(transaction=True)

#: What the views were told, in order; and with which statuses they respond: then 201.
SEEN: list[bool] = []
STATUSES: list[int] = []


def ask(request: Any) -> int:
    """Ask, and return a status."""
    SEEN.append(request.idempotency.may_have_acted)
    return STATUSES.pop(0) if STATUSES else 201


def view(request: HttpRequest) -> HttpResponse:
    return JsonResponse({}, status=ask(request))


@idempotent(guarantee="lease")
async def async_view(request: HttpRequest) -> HttpResponse:
    return JsonResponse({}, status=ask(request))


class RestView(IdempotentViewMixin, APIView):
    def post(self, request: Request) -> Response:
        return Response({}, status=ask(request))


class LeasedRestView(RestView):
    idempotency = Policy(guarantee="lease")


@idempotent_function(key="order")
def pay(*, order: int) -> bool:
    operation = current_operation()
    assert operation is not None
    SEEN.append(operation.may_have_acted)
    if order < 0:
        raise ZeroDivisionError
    return operation.may_have_acted


@idempotent()
def paying_view(request: HttpRequest) -> HttpResponse:
    """Call a guarded function, whose claim joins the view's transaction."""
    pay(order=1)
    return JsonResponse({}, status=201)


urlpatterns = [
    path("plain/", idempotent()(view)),
    path("leased/", idempotent(guarantee="lease")(view)),
    path("async/", async_view),
    path("rest/", RestView.as_view(authentication_classes=[SessionAuthentication])),
    path("leased-rest/", LeasedRestView.as_view(authentication_classes=[SessionAuthentication])),
    path("open/", idempotent(on_store_failure="open")(view)),
    path("paying/", paying_view),
]
URLS = ["/plain/", "/leased/", "/async/", "/rest/", "/leased-rest/"]


class Unreachable(ORMStore):
    """Its database is away."""

    def claim(self, ticket: Ticket) -> Record:
        raise StoreUnavailable


@pytest.fixture(autouse=True)
def seen() -> None:
    SEEN.clear()
    STATUSES.clear()


@pytest.fixture
def send(user: User, connect: Connect) -> Sender:
    return connect("/plain/", user)


@committed
@pytest.mark.parametrize("url", URLS)
def test_an_attempt_before_this_one(send: Sender, url: str) -> None:
    """Not of a new key. After a failure, a refusal and a crash it may have."""
    STATUSES[:] = [500, 400]
    for _ in range(4):
        send(url=url)
    assert SEEN == [False, True, True]


@pytest.mark.django_db
@pytest.mark.parametrize("url", [url for url in URLS if url != "/async/"])
def test_the_transaction_of_a_test_is_none(send: Sender, url: str) -> None:
    """A project's own TestCase sees what production does."""
    STATUSES[:] = [500]
    for _ in range(3):
        send(url=url)
    assert SEEN == [False, True]


@pytest.mark.django_db
def test_a_transaction_inside_a_tests() -> None:
    """A caller's block in a test is one, as in production."""
    with pytest.raises(ConfigurationError), transaction.atomic():
        pay(order=1)
    assert pay(order=1) is False


@committed
def test_a_function_in_a_callers_transaction() -> None:
    """A crash takes its claim back with the caller's transaction, so nothing is said, and the error
    says what to type.
    """
    with (
        pytest.raises(ConfigurationError, match=r"may_have_acted of .*pay.* outside atomic\(\)"),
        transaction.atomic(),
    ):
        pay(order=1)
    assert pay(order=1) is False


@committed
def test_a_function_inside_a_guarded_view(send: Sender) -> None:
    """Its caller's transaction is the view's own: only the view's claim is durable."""
    send.client.raise_request_exception = True
    with pytest.raises(ConfigurationError, match=r"may_have_acted of .*pay is not known"):
        send(url="/paying/")


@committed
@pytest.mark.parametrize(
    ("url", "refused"),
    [("/rest/", True), ("/plain/", True), ("/leased/", False), ("/leased-rest/", False)],
)
def test_atomic_requests(
    send: Sender, url: str, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim that joins the request's transaction says nothing; one of a lease is committed before
    its view.
    """
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", True)
    send.client.raise_request_exception = True
    if not refused:
        send(url=url)
        assert SEEN == [False]
        return
    with pytest.raises(
        ConfigurationError,
        match=rf'POST {url} is not known.*Type guarantee="lease".*non_atomic_requests',
    ):
        send(url=url)


@committed
def test_durable_claims_off(send: Sender) -> None:
    """Where a crash may forget the claim, nothing is said, on every database; a lease's is not
    forgotten.
    """
    send.client.raise_request_exception = True
    with stores.replaced("default", ORMStore(durable_claims=False)):
        send(url="/leased/")
        assert SEEN == [False]
        with pytest.raises(ConfigurationError, match='"durable_claims": False'):
            send(url="/plain/", key="another")


@committed
def test_where_nothing_is_known(send: Sender) -> None:
    """Without the store, while idempotency is off, and without a key, an earlier attempt may have
    acted.
    """
    with stores.replaced("default", Unreachable()):
        send(url="/open/")
    with override_idempotency(enabled=False):
        send(url="/plain/")
        assert pay(order=5) is True
    send(url="/plain/", key=None)
    assert SEEN == [True] * 4


@committed
def test_functions() -> None:
    """After a failure the next attempt is told."""
    with pytest.raises(ZeroDivisionError):
        pay(order=-1)
    with pytest.raises(ZeroDivisionError):
        pay(order=-1)
    assert SEEN == [False, True]
