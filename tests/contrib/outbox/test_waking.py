"""A relay that listens publishes what is committed at once, however seldom it polls."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations.state import ProjectState

from django_idempotency.contrib.outbox.management.commands import idempotency_relay
from django_idempotency.contrib.outbox.models import Message
from django_idempotency.contrib.outbox.waking import Listener, NotifyRelay

from .helpers import committed, sent, waiting
from .publishers import Broker

pytestmark = committed

on_postgresql = pytest.mark.skipif(
    "connection.vendor != 'postgresql'", reason="only PostgreSQL notifies"
)
#: Longer than any test: a relay that is not woken does not look again.
POLL = 600


@pytest.fixture(autouse=True)
def broker() -> None:
    Broker.reset()


@pytest.fixture
def trigger() -> Iterator[None]:
    """Apply the operation, and undo it, as a migration does."""
    operation, state = NotifyRelay(), ProjectState()
    with connection.schema_editor() as editor:
        operation.database_forwards("shop", editor, state, state)
    yield
    with connection.schema_editor() as editor:
        operation.database_backwards("shop", editor, state, state)


def relay(*arguments: str) -> str:
    out = StringIO()
    publisher = "--publisher=tests.contrib.outbox.publishers.Publisher"
    call_command(
        "idempotency_relay", "--listen", f"--poll={POLL}", publisher, *arguments, stdout=out
    )
    return out.getvalue()


@pytest.fixture
def once_idle(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Return a function that says what to do, in a thread, each time the relay begins to wait."""
    real, threads = Listener.heard, list[threading.Thread]()
    acts = list[Callable[[], object]]()

    def heard(listener: Listener, seconds: float) -> bool:
        listening = listener._listening is connection.connection is not None
        if listening and acts and not (threads and threads[-1].is_alive()):
            threads.append(threading.Thread(target=apart, args=(acts.pop(0),)))
            threads[-1].start()
        return real(listener, seconds)

    def apart(act: Callable[[], object]) -> None:
        act()
        connection.close()

    monkeypatch.setattr(Listener, "heard", heard)
    yield lambda *given: acts.extend(given)
    for thread in threads:
        thread.join(10)


@on_postgresql
@pytest.mark.usefixtures("trigger")
def test_a_commit_wakes_it(once_idle: Callable[..., None]) -> None:
    """The message was not there when the relay looked, and its next poll is ten minutes away."""
    Broker.plan = {0: lambda: signal.raise_signal(signal.SIGTERM)}
    once_idle(lambda: sent("a"))
    began = time.monotonic()
    assert relay().endswith("1 message published.\n")
    assert time.monotonic() - began < 10
    assert waiting() == []


@on_postgresql
@pytest.mark.usefixtures("trigger")
def test_it_listens_on_the_next_connection(
    once_idle: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session ends while it waits: it reconnects, and is woken again."""
    monkeypatch.setattr(idempotency_relay, "RECONNECT", 0)
    Broker.plan = {1: lambda: signal.raise_signal(signal.SIGTERM)}
    connection.ensure_connection()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (ours,) = cursor.fetchone()

    def cut_off() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s)", [ours])

    once_idle(lambda: sent("a"), cut_off, lambda: sent("b"))
    assert relay().endswith("2 messages published.\n")
    assert Broker.journal.count("opened") == 2


@on_postgresql
@pytest.mark.usefixtures("trigger")
def test_a_signal_ends_it_while_it_listens(once_idle: Callable[..., None]) -> None:
    once_idle(lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM))
    assert relay().endswith("Nothing was published.\n")


@on_postgresql
def test_without_the_trigger() -> None:
    """It says what to type, since nothing would wake it."""
    with pytest.raises(
        CommandError, match=r"Put NotifyRelay\(\) into the operations of a migration"
    ):
        relay()


@pytest.mark.skipif("connection.vendor == 'postgresql'", reason="PostgreSQL notifies")
def test_another_database() -> None:
    """The operation does nothing there, the option is refused, and a relay without it polls."""
    with connection.schema_editor() as editor:
        state = ProjectState()
        NotifyRelay().database_forwards("shop", editor, state, state)
        NotifyRelay().database_backwards("shop", editor, state, state)
    with pytest.raises(
        CommandError, match=r"--listen needs PostgreSQL and psycopg 3\. Leave it out"
    ):
        relay()


def test_the_operation_can_be_written_into_a_migration() -> None:
    """It survives `squashmigrations`, and touches no state."""
    name, arguments, named = NotifyRelay().deconstruct()
    assert (name, arguments, named) == ("NotifyRelay", (), {})
    NotifyRelay().state_forwards("shop", state := ProjectState())
    assert state.models == {}
    assert Message._meta.label not in state.models
