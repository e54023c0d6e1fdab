"""Work under `lease` that leaves a transaction open: no record is written into it, and no success
is said of its writes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import Error, connection, transaction
from django.http import HttpResponse, JsonResponse
from django.urls import path
from rest_framework.authentication import SessionAuthentication
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import Policy, idempotent, idempotent_function
from django_idempotency.core.records import Status
from django_idempotency.errors import ConfigurationError, TransactionLeftOpen
from django_idempotency.models import IdempotencyRecord
from django_idempotency.rest_framework import IdempotentViewMixin
from testproject.payments.models import Effect

from .conftest import Connect, Sender, effects

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]


def begin() -> None:
    """Begin a transaction past Django."""
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")


def manual() -> None:
    transaction.set_autocommit(False)


def block() -> None:
    transaction.atomic().__enter__()


def aborted() -> None:
    """Begin a transaction past Django, and break it."""
    begin()
    with suppress(Error), connection.cursor() as cursor:
        cursor.execute("SELECT nothing FROM nowhere")


WAYS: dict[str, Callable[[], None]] = {"begin": begin, "manual": manual, "block": block}
#: How the next work begins, and with which status it responds.
NEXT: list[Callable[[], None]] = []
STATUSES: list[int] = []
ATTEMPTS: list[tuple[int, bool]] = []


def work(operation: Any) -> int:
    ATTEMPTS.append((operation.attempt, operation.may_have_acted))
    if NEXT:
        NEXT.pop()()
    Effect.objects.create(label="work", idempotency_key="", attempt=operation.attempt)
    return STATUSES.pop() if STATUSES else 201


@idempotent(guarantee="lease")
def view(request: Any) -> HttpResponse:
    return JsonResponse({}, status=work(request.idempotency))


@idempotent(guarantee="lease")
async def async_view(request: Any) -> HttpResponse:
    return JsonResponse({}, status=await sync_to_async(work)(request.idempotency))


class RestView(IdempotentViewMixin, APIView):
    idempotency = Policy(guarantee="lease")

    def post(self, request: Request) -> Response:
        handle: Any = request
        return Response({}, status=work(handle.idempotency))


@idempotent_function(key="order", guarantee="lease")
def pay(*, order: int) -> int:
    from django_idempotency.functions import current_operation

    return work(current_operation())


urlpatterns = [
    path("plain/", view),
    path("async/", async_view),
    path("rest/", RestView.as_view(authentication_classes=[SessionAuthentication])),
]
URLS = [f"/{each.pattern}" for each in urlpatterns]


@pytest.fixture(autouse=True)
def nothing_left() -> Any:
    for each in (NEXT, STATUSES, ATTEMPTS):
        each.clear()
    yield
    assert connection.get_autocommit()
    assert not connection.in_atomic_block


@pytest.fixture
def send(user: User, connect: Connect) -> Sender:
    return connect("/plain/", user)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("url", URLS)
def test_a_success(send: Sender, url: str, way: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is neither sent nor remembered; the log names the connection.

    The retry is the next attempt, and writes once.
    """
    NEXT[:] = [WAYS[way]]
    answer = send(url=url)
    assert (answer.status_code, answer.json()["code"]) == (500, "writes-rolled-back")
    assert (effects(), IdempotencyRecord.objects.get().status) == (0, Status.FREE)
    assert any(
        "'default'" in line.getMessage() for line in caplog.records if line.levelno == logging.ERROR
    )
    assert send(url=url).status_code == 201
    again = send(url=url)
    assert (again.status_code, again["Idempotent-Replayed"]) == (201, "true")
    assert (effects(), ATTEMPTS) == (1, [(1, False), (2, True)])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("status", "left"), [(402, Status.COMPLETED), (400, Status.FREE), (500, Status.FREE)]
)
def test_a_refusal_or_a_failure(send: Sender, way: str, status: int, left: Status) -> None:
    """It stays what it is: its record is settled on a clean connection."""
    NEXT[:], STATUSES[:] = [WAYS[way]], [status]
    assert send().status_code == status
    assert (effects(), IdempotencyRecord.objects.get().status) == (0, left)


@pytest.mark.parametrize("way", WAYS)
def test_a_function(way: str) -> None:
    """Its caller gets the error, by its name, and the next call is the next attempt."""
    NEXT[:] = [WAYS[way]]
    with pytest.raises(TransactionLeftOpen):
        pay(order=1)
    assert effects() == 0
    assert [pay(order=1), pay(order=1)] == [201, 201]
    assert (effects(), ATTEMPTS) == (1, [(1, False), (2, True)])


def test_manual_transactions_that_were_committed(send: Sender) -> None:
    """Nothing was left: the response is remembered, although autocommit is still off."""

    @idempotent_function(key="order", key_prefix="by-hand", guarantee="lease")
    def pay_by_hand(*, order: int) -> int:
        transaction.set_autocommit(False)
        Effect.objects.create(label="by hand", idempotency_key="", attempt=0)
        transaction.commit()
        return order

    assert [pay_by_hand(order=1), pay_by_hand(order=1)] == [1, 1]
    assert effects() == 1


@pytest.mark.skipif(
    "connection.vendor != 'postgresql'", reason="elsewhere a statement that fails breaks nothing"
)
def test_an_aborted_transaction(send: Sender) -> None:
    """One past Django that is broken as well: a view that swallows that has no success."""

    @idempotent_function(key="order", key_prefix="aborted", guarantee="lease")
    def pay_badly(*, order: int) -> int:
        aborted()
        return order

    with pytest.raises(TransactionLeftOpen):
        pay_badly(order=1)


def test_a_claim_in_what_another_has_left_open(send: Sender) -> None:
    """It would be rolled back with it: nothing runs, and the error says why."""
    begin()
    try:
        with pytest.raises(ConfigurationError, match="a BEGIN past Django is open"):
            pay(order=1)
    finally:
        with suppress(Error), connection.cursor() as cursor:  # the refusal may have ended it
            cursor.execute("ROLLBACK")
    assert ATTEMPTS == []
    assert pay(order=1) == 201


@pytest.mark.parametrize("way", ["begin", "manual"])
def test_a_record_in_another_store(send: Sender, way: str, settings: Any) -> None:
    """A record that is elsewhere, as in Redis, says no success of writes that nobody commits,
    either.
    """
    memory = {"BACKEND": "django_idempotency.stores.memory.MemoryStore"}
    settings.IDEMPOTENCY = {"STORES": {"default": memory}, "GUARANTEE": "lease"}
    NEXT[:] = [WAYS[way]]
    answer = send()
    assert (answer.status_code, answer.json()["code"]) == (500, "writes-rolled-back")
    assert send().status_code == 201
    NEXT[:] = [WAYS[way]]
    with pytest.raises(TransactionLeftOpen):
        pay(order=1)
    assert pay(order=1) == 201
    assert (effects(), ATTEMPTS) == (2, [(1, False), (2, True)] * 2)
