"""Events of our own threads are sent one after the other, by one thread that a receiver may
delay.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator

import pytest
from django.db import connection

from django_idempotency.engine.lease import LeaseOperation
from django_idempotency.engine.notifying import Notifier
from django_idempotency.engine.operation import Operation
from django_idempotency.models import IdempotencyRecord
from django_idempotency.stores.memory import MemoryStore
from django_idempotency.testing.tickets import make_ticket

from ..faults.plans import until
from ..support.fakes import Listener


class Hanging:
    """A receiver that returns when allowed, and notes what it received and in which thread."""

    def __init__(self) -> None:
        self.called, self.go_on = threading.Event(), threading.Event()
        self.got: list[object] = []
        self.threads: set[threading.Thread] = set()

    def __call__(self, event: object) -> None:
        self.called.set()
        self.go_on.wait(60)
        self.got.append(event)
        self.threads.add(threading.current_thread())


@pytest.fixture
def receiver() -> Iterator[Hanging]:
    receiver = Hanging()
    yield receiver
    receiver.go_on.set()


@pytest.fixture
def operation() -> Operation:
    return LeaseOperation(MemoryStore(), make_ticket(), Listener())


def notify(notifier: Notifier, operation: Operation, receiver: Hanging, *events: object) -> None:
    for event in events:
        # Bound as it is now.
        notifier.notify(operation, lambda event=event: receiver(event))  # type: ignore[misc]


def test_in_order(receiver: Hanging, operation: Operation) -> None:
    """Notifying never waits, and one thread sends all events in order."""
    notifier = Notifier()
    notify(notifier, operation, receiver, *range(50))
    assert receiver.got == []
    receiver.go_on.set()
    notifier.drain(60)
    assert receiver.got == list(range(50))
    assert [thread.name for thread in receiver.threads] == ["django-idempotency-notifying"]


def test_what_receivers_open_is_closed(
    receiver: Hanging, operation: Operation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread closes the store's connection and Django's, then ends; the next event starts
    another.
    """
    notifier, closed = Notifier(), list[str]()

    def closing() -> None:
        if threading.current_thread() is notifier._thread:  # and not that of an earlier test
            closed.append("all")

    monkeypatch.setattr(
        operation.store, "close", lambda: closed.append(f"store {threading.current_thread().name}")
    )
    monkeypatch.setattr("django_idempotency.engine.notifying.closing", closing)
    receiver.go_on.set()
    for number in (1, 2):
        notify(notifier, operation, receiver, number)
        until(lambda: notifier._thread is None, "the thread has ended")
        assert closed == ["store django-idempotency-notifying", "all"] * number
    assert receiver.got == [1, 2]


def test_a_receiver_that_raises(
    receiver: Hanging, operation: Operation, caplog: pytest.LogCaptureFixture
) -> None:
    """The error is logged, and the next event is sent."""

    def fail() -> None:
        raise SystemExit

    notifier = Notifier()
    receiver.go_on.set()
    notifier.notify(operation, fail)
    notify(notifier, operation, receiver, "next")
    notifier.drain(60)
    assert receiver.got == ["next"]
    assert "An observer of a record's end raised." in caplog.text


def test_the_queue_is_bounded(
    receiver: Hanging,
    operation: Operation,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An event too many is logged as not sent; those in the queue are sent."""
    monkeypatch.setattr("django_idempotency.engine.notifying.LONGEST", 3)
    notifier = Notifier()
    notify(notifier, operation, receiver, 0)
    assert receiver.called.wait(10)
    notify(notifier, operation, receiver, 1, 2, 3, 4)
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "is not sent: 3 others wait" in caplog.text
    assert operation.ticket.key not in caplog.text
    receiver.go_on.set()
    notifier.drain(60)
    assert receiver.got == [0, 1, 2, 3]


def test_the_end_of_a_process_does_not_wait_for_long(
    receiver: Hanging, operation: Operation, caplog: pytest.LogCaptureFixture
) -> None:
    """Events that were not received by then are counted."""
    notifier = Notifier()
    notify(notifier, operation, receiver, 1, 2)
    assert receiver.called.wait(10)
    notifier.drain(0)
    assert "2 events may not have been received" in caplog.text


def test_no_thread_can_be_started(
    receiver: Hanging, operation: Operation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If no thread can be started, the reporting thread sends the event at once."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    receiver.go_on.set()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        notify(Notifier(), operation, receiver, "now")
    assert receiver.got == ["now"]
    assert receiver.threads == {threading.current_thread()}


# "fork in a process with threads" is what this tests.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_resets_it(receiver: Hanging, operation: Operation) -> None:
    """The parent sends the queued events; the child sends its own, in its own thread."""
    notifier = Notifier()
    notify(notifier, operation, receiver, 1, 2)
    assert receiver.called.wait(10)
    child = os.fork()
    if child == 0:  # pragma: no cover
        got: list[str] = []
        try:
            notifier.notify(operation, lambda: got.append("child's"))
            notifier.drain(10)
        finally:
            os._exit(0 if got == ["child's"] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    receiver.go_on.set()
    notifier.drain(60)
    assert receiver.got == [1, 2]


@pytest.mark.django_db(transaction=True)
def test_what_a_receiver_leaves_behind(operation: Operation) -> None:
    """A connection that a receiver has broken, or left in a transaction, is not passed to the next
    one.
    """
    notifier, records = Notifier(), []

    def left_open() -> None:
        connection.set_autocommit(False)
        raise ValueError

    def healthy() -> None:
        records.append((connection.get_autocommit(), IdempotencyRecord.objects.count()))

    def broken() -> None:
        connection.connection.close()

    for send in (healthy, left_open, healthy, broken, healthy):
        notifier.notify(operation, send)
    notifier.drain(60)
    assert records == [(True, 0)] * 3
