"""Every event is reported once: by a signal, and by one structured log record that holds nothing
unvalidated.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection, connections
from django.dispatch import Signal
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path, re_path, resolve

from django_idempotency import idempotent, signals
from django_idempotency.core.records import Guarantee, Status
from django_idempotency.engine.operation import AtomicOperation, Operation
from django_idempotency.errors import StoreUnavailable
from django_idempotency.instrumentation.observer import Observer
from django_idempotency.models import IdempotencyRecord
from django_idempotency.stores.orm import ORMStore
from django_idempotency.testing.tickets import make_ticket
from testproject.payments.models import Effect
from testproject.urls import urlpatterns as project_urls

from ..entry_points.conftest import CHARGE, KEY, Connect, Sender, connect, effects, entry_point

__all__ = ["connect", "entry_point"]  # fixtures

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]

ALL = (
    *(
        "claimed",
        "replayed",
        "busy",
        "contended",
        "mismatched",
        "late",
        "unreadable",
        "taken_over",
        "resumed",
    ),
    *("completed", "released", "suspended", "deferred", "lost"),
    *("unavailable", "unguarded", "observed", "flooded", "suspected"),
)
not_sqlite = pytest.mark.skipif(
    "connection.vendor == 'sqlite'", reason="SQLite has one writer: it queues"
)


@idempotent()
def refusing(request: HttpRequest) -> HttpResponse:
    return JsonResponse({}, status=400)


@idempotent()
def raising(request: HttpRequest) -> HttpResponse:
    raise LookupError("swordfish")


@idempotent(anonymous="shared", scope=lambda request: request.headers.get("X-Tenant"))
def anybody(request: HttpRequest) -> HttpResponse:
    return JsonResponse({}, status=201)


urlpatterns = [
    *project_urls,
    path("refusing/", refusing),
    path("raising/", raising),
    re_path(r"(?s)^anybody/.*$", anybody),
]


class Received:
    """What the signals and the log reported."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.caplog = caplog
        self.events: list[str] = []
        self.sent: list[dict[str, Any]] = []

    def __call__(self, event: str, **sent: Any) -> None:
        self.events.append(event)
        self.sent.append(sent)

    @property
    def records(self) -> list[logging.LogRecord]:
        return [record for record in self.caplog.records if record.name == "django_idempotency"]

    @property
    def logged(self) -> list[dict[str, Any]]:
        return [record.__dict__["idempotency"] for record in self.records]

    def forget(self) -> None:
        self.events.clear()
        self.sent.clear()
        self.caplog.clear()


Listen = Callable[[str, Callable[..., None]], None]


@pytest.fixture
def listen() -> Iterator[Listen]:
    """Return a function that connects a receiver to an event, for one test."""
    connected: list[tuple[Any, Callable[..., None]]] = []

    def listen(event: str, receiver: Callable[..., None]) -> None:
        signal = getattr(signals, event)
        signal.connect(receiver, weak=False)
        connected.append((signal, receiver))

    yield listen
    for signal, receiver in connected:
        signal.disconnect(receiver)


@pytest.fixture
def received(listen: Listen, caplog: pytest.LogCaptureFixture) -> Received:
    """Listen to every event."""
    caplog.set_level(logging.DEBUG, logger="django_idempotency")
    received = Received(caplog)
    for event in ALL:

        def receive(event: str = event, **sent: Any) -> None:
            received(event, **sent)

        listen(event, receive)
    return received


def lapse() -> None:
    """Make the record that of an owner that died long ago."""
    past = datetime.now(timezone.utc) - timedelta(minutes=5)
    IdempotencyRecord.objects.update(
        status=Status.RUNNING, owner=uuid4(), lease_until=past, completed_at=None
    )


def assert_received(received: Received, *events: str) -> None:
    """Each event is one signal and one log record that agree."""
    assert received.events == list(events)
    assert [logged["event"] for logged in received.logged] == list(events)
    for sent, logged in zip(received.sent, received.logged, strict=True):
        operation = sent["operation"]
        assert sent["sender"] is Operation
        assert isinstance(operation, Operation)
        assert isinstance(sent["request"], HttpRequest)
        assert sent["request"].path == operation.ticket.path
        assert logged == {
            "event": logged["event"],
            "key": KEY[:8] + "…",
            "scope": operation.ticket.scope,
            "method": "POST",
            "path": operation.ticket.path,
            "route": resolve(sent["request"].path).route,
            "key_hash": operation.ticket.id.hex[:12],
            "guarantee": "atomic",
            "attempt": operation.attempt,
            "error": type(sent["error"]).__name__ if sent["error"] else None,
            "cause": "OperationalError: no route to host"
            if logged["event"] == "unavailable"
            else None,
        }


# --------------------------------------------------------------------------------------- the events


def test_the_first_request(entry_point: Sender, received: Received) -> None:
    """The first request is claimed, then completed.

    A plain text log tells which: method, route and the key's hash.
    """
    assert entry_point().status_code == 201
    assert_received(received, "claimed", "completed")
    facts = received.logged[0]
    named = f"POST {facts['route']}, key {facts['key_hash']}"
    assert received.records[0].getMessage() == f"Claimed: the work runs. {named}"
    assert [sent["operation"].attempt for sent in received.sent] == [1, 1]


def test_a_replay(entry_point: Sender, received: Received) -> None:
    """A replay is replayed, and claims nothing."""
    entry_point()
    received.forget()
    entry_point()
    assert_received(received, "replayed")


def test_another_body(entry_point: Sender, received: Received) -> None:
    """Another body is a mismatch, and the event has the record of the original."""
    entry_point()
    received.forget()
    assert entry_point({"amount": 1, "currency": "inr"}).status_code == 422
    assert_received(received, "mismatched")
    assert received.sent[0]["operation"].record.status is Status.COMPLETED


def test_a_refusal_releases(entry_point: Sender, received: Received) -> None:
    """A refusal is claimed and released; the next request is claimed again, as the second
    attempt.
    """
    assert entry_point({"amount": -1, "currency": "inr"}).status_code == 400
    assert_received(received, "claimed", "released")
    received.forget()
    assert entry_point().status_code == 201
    assert_received(received, "claimed", "completed")
    assert received.logged[0]["attempt"] == 2


def test_an_exception_releases(user: User, connect: Connect, received: Received) -> None:
    """An exception is reported once, and its text is in none of our records."""
    assert connect("/raising/", user)().status_code == 500
    assert_received(received, "claimed", "released")
    assert "swordfish" not in str([vars(record) for record in received.records])


def test_a_takeover(entry_point: Sender, received: Received) -> None:
    """The record is taken over instead of claimed, as the next attempt."""
    entry_point()
    lapse()
    received.forget()
    assert entry_point().status_code == 201
    assert_received(received, "taken_over", "completed")
    assert received.logged[0]["attempt"] == 2


@not_sqlite
def test_a_duplicate(entry_point: Sender, received: Received, listen: Listen) -> None:
    """A duplicate is busy while the first request is in its guard."""
    statuses: list[int] = []

    def duplicate(**_: Any) -> None:
        def call() -> None:
            statuses.append(entry_point().status_code)
            connections.close_all()

        if not statuses:
            thread = threading.Thread(target=call)
            thread.start()
            thread.join(20)

    listen("claimed", duplicate)
    assert entry_point().status_code == 201
    assert statuses == [409]
    assert_received(received, "claimed", "busy", "completed")


def test_a_lost_record(entry_point: Sender, received: Received, listen: Listen) -> None:
    """The loss is reported once: another owner has the record at the settle. The work is undone."""

    def steal(**_: Any) -> None:
        IdempotencyRecord.objects.update(owner=uuid4())

    listen("claimed", steal)
    assert entry_point().status_code == 409
    assert_received(received, "claimed", "lost")
    assert effects() == 0


def test_a_store_that_is_gone(
    entry_point: Sender, received: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is reported as unavailable, with the first line of what its driver said, and
    nothing ran.
    """

    def gone(*_: Any) -> None:
        raise StoreUnavailable from OperationalError("no route to host\nDETAIL: swordfish")

    monkeypatch.setattr(ORMStore, "claim", gone)
    assert entry_point().status_code == 503
    assert_received(received, "unavailable")
    assert received.logged[0]["error"] == "StoreUnavailable"
    assert "swordfish" not in str(
        [(record.getMessage(), received.logged) for record in received.records]
    )


def test_nothing_is_reported_without_a_key(
    user: User, connect: Connect, received: Received
) -> None:
    """Neither a missing key nor a malformed one is an event."""
    send = connect("/plain/charges/", user)
    assert send(key=None).status_code == 201
    assert send(key="a,b").status_code == 400
    assert_received(received)


# ------------------------------------------------------------------------------------ when, and who


def test_completed_comes_after_commit(entry_point: Sender, listen: Listen) -> None:
    """A receiver's own connection sees the record and the effect."""
    seen: list[tuple[int, Any]] = []

    def look(**_: Any) -> None:
        def read() -> None:
            seen.append((Effect.objects.count(), IdempotencyRecord.objects.get().status))
            connections.close_all()

        assert not connection.in_atomic_block
        thread = threading.Thread(target=read)
        thread.start()
        thread.join(20)

    listen("completed", look)
    entry_point()
    assert seen == [(1, Status.COMPLETED)]


def test_released_comes_after_commit(user: User, connect: Connect, listen: Listen) -> None:
    """The key is free when a receiver is notified."""
    seen: list[bool] = []
    listen("released", lambda **_: seen.append(connection.in_atomic_block))
    connect("/refusing/", user)()
    connect("/raising/", user)(key="another-key")
    assert seen == [False, False]


@pytest.mark.parametrize(
    "event", ["claimed", "completed", "replayed", "mismatched", "released", "taken_over", "lost"]
)
def test_a_receiver_that_raises_changes_nothing(
    user: User, connect: Connect, received: Received, listen: Listen, event: str
) -> None:
    """The other receivers, the log and the response are not affected."""

    def fail(**_: Any) -> None:
        raise RuntimeError("A receiver failed.")

    def steal(**_: Any) -> None:
        IdempotencyRecord.objects.filter(path="/middleware/charges/").update(owner=uuid4())

    listen(event, fail)
    listen("claimed", steal)
    send = connect("/plain/charges/", user)
    assert send({"amount": -1}).status_code == 400
    assert send().status_code == 201
    assert send()["Idempotent-Replayed"] == "true"
    assert send({"amount": 1}).status_code == 422
    lapse()
    assert send().status_code == 201
    assert connect("/middleware/charges/", user)(key="another-key").status_code == 409
    assert received.events == [
        *("claimed", "released"),
        *("claimed", "completed"),
        "replayed",
        "mismatched",
        *("taken_over", "completed"),
        *("claimed", "lost"),
    ]
    assert [logged["event"] for logged in received.logged] == received.events


# ------------------------------------------------------------------------------ what a record holds

LEVELS = {
    "claimed": logging.DEBUG,
    "replayed": logging.DEBUG,
    "resumed": logging.DEBUG,
    "completed": logging.DEBUG,
    "suspended": logging.DEBUG,
    "deferred": logging.WARNING,
    "busy": logging.INFO,
    "contended": logging.WARNING,
    "released": logging.INFO,
    "mismatched": logging.WARNING,
    "late": logging.INFO,
    "taken_over": logging.WARNING,
    "lost": logging.ERROR,
    "unreadable": logging.ERROR,
    "unavailable": logging.ERROR,
    "flooded": logging.WARNING,
    "suspected": logging.WARNING,
    "unguarded": logging.WARNING,
    "observed": logging.WARNING,
}


def test_every_event_has_a_signal_and_a_level() -> None:
    """The engine's events and the three of the entry points are all there is."""
    assert {name: event.level for name, event in signals.EVENTS.items()} == LEVELS
    assert all(event is getattr(signals, name) for name, event in signals.EVENTS.items())
    assert set(LEVELS) == set(ALL)
    others = {"duplicate_found"}  # of a command, not of a key
    assert {name for name in vars(signals) if isinstance(getattr(signals, name), Signal)} == set(
        ALL
    ) | others


@pytest.mark.parametrize("key", ["k", "ab", "1234567", "12345678", "123456789", KEY, "k" * 255])
def test_a_key_is_never_whole(user: User, connect: Connect, received: Received, key: str) -> None:
    """At most eight characters and at most half of the key are logged: a short key is no less
    secret.
    """
    connect("/plain/charges/", user)(key=key)
    for logged in received.logged:
        shown = logged["key"].removesuffix("…")
        assert logged["key"] == shown + "…"
        assert key.startswith(shown)
        assert len(shown) <= min(8, len(key) / 2)


def test_nothing_unvalidated_is_logged(user: User, connect: Connect, received: Received) -> None:
    """The path is escaped; no header, query, body or response is logged, and no line break could
    forge a line.
    """
    send = connect("/plain/charges/", user)
    evil = "/anybody/%0AERROR forged%0D%1b[31m\u2028é%25%3Cscript%3E"
    send.url = evil + "?token=swordfish"
    answer = send(CHARGE, headers={"X-Evil": "swordfish", "User-Agent": "swordfish"})
    assert answer.status_code == 201
    assert received.events == ["claimed", "completed"]
    for record, logged in zip(received.records, received.logged, strict=True):
        assert record.getMessage().isascii()
        # The project's pattern, and our hash.
        assert record.args == (
            "POST",
            logged["route"],
            logged["key_hash"],
        )
        assert not record.exc_info
        assert record.getMessage().isprintable()
        everything = "".join(map(str, logged.values()))
        assert everything.replace("…", "").isascii()
        assert everything.isprintable()
        assert not {"<", '"', "'", " "} & set(logged["path"])
        assert "swordfish" not in everything + record.getMessage()


def test_a_response_without_a_client(connect: Connect, user: User, received: Received) -> None:
    """A project's own scope is bounded and ASCII, and a shared key is shortened too."""
    send = connect("/plain/charges/", user)
    send.client.logout()
    send.url = "/anybody/x"
    assert send(headers={"X-Tenant": "t" * 300}).status_code == 201
    assert send().status_code == 201
    scopes = {logged["scope"] for logged in received.logged}
    assert "anonymous" in scopes
    assert all(scope.isascii() and len(scope) <= 255 for scope in scopes)


def test_a_quiet_logger_makes_no_record(user: User, connect: Connect, received: Received) -> None:
    """Signals are sent whatever the level of the log."""
    received.caplog.set_level(logging.WARNING, logger="django_idempotency")
    connect("/plain/charges/", user)()
    assert received.events == ["claimed", "completed"]
    assert received.records == []


@pytest.mark.django_db(transaction=True)
def test_a_savepoint_that_cannot_be_made(listen: Listen) -> None:
    """The connection is lost before a receiver is notified: the store is unavailable, and nothing
    has run.
    """

    def fails(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith("SAVEPOINT"):
            raise OperationalError("server closed the connection unexpectedly")
        return execute(sql, params, many, context)

    listen("claimed", lambda **_: None)
    operation = AtomicOperation(ORMStore(), make_ticket(guarantee=Guarantee.ATOMIC), Observer())
    with connection.execute_wrapper(fails), pytest.raises(StoreUnavailable):
        operation.open()
    assert not connection.in_atomic_block
