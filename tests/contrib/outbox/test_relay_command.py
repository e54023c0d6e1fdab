"""`manage.py idempotency_relay`: what it prints, how it ends, and what it does when the broker or the
database is lost.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import InterfaceError, OperationalError, ProgrammingError, connection
from pytest_django import Settings

from django_idempotency.contrib.outbox.management.commands import idempotency_relay
from django_idempotency.contrib.outbox.models import Message
from django_idempotency.contrib.outbox.relaying import Relay
from django_idempotency.errors import BrokerUnavailable
from django_idempotency.management import base

from .helpers import committed, sent, waiting
from .publishers import Broker

pytestmark = committed

HERE = "tests.contrib.outbox.publishers"


@pytest.fixture(autouse=True)
def naps(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Collect the waits instead of waiting."""
    Broker.reset()
    taken: list[float] = []
    monkeypatch.setattr(
        idempotency_relay.Command, "nap", lambda command, seconds: taken.append(seconds)
    )
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    yield taken
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == handlers


def relay(*arguments: str, publisher: str | None = f"{HERE}.Publisher", **options: Any) -> str:
    out = StringIO()
    chosen = [] if publisher is None else [f"--publisher={publisher}"]
    call_command("idempotency_relay", *chosen, *arguments, stdout=out, **options)
    hello, said = (
        "Publishing the outbox of 'default'. Stop with Ctrl+C or SIGTERM.\n",
        out.getvalue(),
    )
    assert ("--once" in arguments) is not said.startswith(hello)
    return said.removeprefix(hello)


def terminate() -> None:
    signal.raise_signal(signal.SIGTERM)


# --------------------------------------------------------------------------------------------- once


def test_once() -> None:
    """All that is due is published, batch by batch, through one publisher."""
    sent(*[""] * 5)
    assert relay("--once", "--batch=2") == "5 messages published.\n"
    assert Broker.journal == ["opened", 0, 1, 2, 3, 4, "closed"]
    assert waiting() == []


def test_once_ends_beside_traffic() -> None:
    """The relay publishes what was there at its start, and not without end what arrives
    meanwhile.
    """
    sent("", "")

    def another() -> None:
        sent("")

    Broker.plan = dict.fromkeys(range(50), another)
    assert relay("--once", "--batch=1") == "3 messages published.\n"
    assert len(waiting()) == 2


def test_nothing() -> None:
    assert relay("--once") == "Nothing was published.\n"


def test_silence() -> None:
    """The relay is silent, also at the start of one that keeps running."""
    sent("", "")
    Broker.plan = {0: terminate}
    out = StringIO()
    call_command("idempotency_relay", f"--publisher={HERE}.Publisher", stdout=out, verbosity=0)
    assert relay("--once", verbosity=0) == out.getvalue() == ""


def test_a_context_manager_is_entered() -> None:
    sent("")
    relay("--once", publisher=f"{HERE}.Entered")
    assert Broker.journal == ["opened", "entered", 0, "left"]


def test_the_setting(settings: Settings) -> None:
    settings.IDEMPOTENCY = {"OUTBOX_PUBLISHER": f"{HERE}.Publisher"}
    sent("")
    assert relay("--once", publisher=None) == "1 message published.\n"


def test_failures_end_in_an_error() -> None:
    """The exit status makes cron notice."""
    sent("a", "b")
    Broker.plan = {0: lambda: ValueError("no such exchange")}
    with pytest.raises(
        CommandError, match=r"1 message published, 1 failed\. Failed messages are retried"
    ):
        relay("--once")
    assert waiting() == [("a", 0)]


@pytest.mark.parametrize(
    ("publisher", "words"),
    [
        (None, r"Which publisher\? Type --publisher"),
        ("nowhere.publish", "cannot be imported: No module named 'nowhere'"),
        (f"{HERE}.Silent", "neither a function"),
        (f"{HERE}.FILE", "neither a function"),
    ],
)
def test_no_publisher(publisher: str | None, words: str) -> None:
    with pytest.raises(CommandError, match=words):
        relay("--once", publisher=publisher)


def test_no_such_database() -> None:
    with pytest.raises(CommandError, match="nowhere"):
        relay("--once", "--using=nowhere")


@pytest.mark.parametrize("argument", ["--batch=0", "--poll=-1", "--poll=soon"])
def test_senseless_numbers(argument: str) -> None:
    with pytest.raises(CommandError):
        relay(argument)


def test_once_without_a_broker() -> None:
    """The relay does not wait, and prints no secret."""
    sent("")
    Broker.away = 1
    with pytest.raises(
        CommandError, match=r"(?s)The broker did not respond\..*refused.*Nothing was published"
    ) as caught:
        relay("--once")
    assert "geheim" not in str(caught.value)
    assert waiting() == [("", 0)]
    assert Message.objects.get().attempts == 0  # it was not the message's fault


def test_any_failure_at_opening_is_the_brokers() -> None:
    with pytest.raises(CommandError, match="no password"):
        relay("--once", publisher=f"{HERE}.Unready")


def test_once_and_the_broker_leaves() -> None:
    """The relay says what it had published until then."""
    sent("", "", "")
    Broker.plan = {2: BrokerUnavailable}
    with pytest.raises(
        CommandError, match=r"(?s)The broker did not respond.*2 messages published, 1 failed"
    ):
        relay("--once")
    assert waiting() == [("", 2)]


# ----------------------------------------------------------------------------------- without --once


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_current_message_end(number: signal.Signals) -> None:
    sent("", "", "")
    Broker.plan = {1: lambda: signal.raise_signal(number)}
    assert relay() == "2 messages published.\n"
    assert waiting() == [("", 2)]
    assert Broker.journal[-1] == "closed"


@pytest.fixture
def interruptible() -> Iterator[None]:
    """What a shell starts in the background ignores SIGINT, and so do the tests then."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_a_second_signal_does_not_wait() -> None:
    """The second signal is for a publisher that hangs.

    What it published since the last COMMIT is published again.
    """
    sent("", "", "")

    def interrupt_twice() -> None:
        for _ in range(2):
            # To this thread: two pending signals to another would be one.
            signal.raise_signal(signal.SIGINT)

    Broker.plan = {1: interrupt_twice}
    with pytest.raises(
        CommandError, match=r"Interrupted in the middle of a message\. 1 message published"
    ) as caught:
        relay("--batch=1")
    assert caught.value.returncode == 130
    assert waiting() == [("", 1), ("", 2)]


def test_it_polls_again(naps: list[float]) -> None:
    """The relay looks again after --poll seconds, for as long as nothing is due."""
    looks = []

    def nap(command: idempotency_relay.Command, seconds: float) -> None:
        looks.append(seconds)
        sent("")
        if len(looks) == 3:
            Broker.plan = {2: terminate}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(idempotency_relay.Command, "nap", nap)
        assert relay("--poll=0.25") == "3 messages published.\n"
    assert looks == [0.25] * 3


def test_it_connects_anew(naps: list[float], caplog: Any) -> None:
    """To a lost broker it reconnects a little later each time; delayed messages go as soon as they
    may.
    """
    sent("", "", "")
    Broker.plan = {
        1: lambda: ConnectionResetError("reset by amqp://shop:geheim@host/"),
        2: terminate,
    }

    with pytest.MonkeyPatch.context() as patch:
        real = idempotency_relay.Command.give_way

        def give_way(command: idempotency_relay.Command, error: Exception, *, what: str) -> bool:
            Broker.away = 2 if not naps else Broker.away
            Message.objects.update(not_before=None)
            return real(command, error, what=what)

        patch.setattr(idempotency_relay.Command, "give_way", give_way)
        assert relay() == "3 messages published, 1 failed.\n"
    assert Broker.journal == ["opened", 0, "closed", "refused", "refused", "opened", 1, 2, "closed"]
    assert naps == [1, 2, 4]
    assert "The broker did not respond to the relay. Next try in 4 s." in caplog.text
    assert "geheim" not in caplog.text


def raising(*errors: Exception) -> Any:
    """Return a batch() that raises these before it works."""
    real, left = Relay.batch, list(errors)

    def batch(self: Relay) -> Any:
        if left:
            raise left.pop(0)
        return real(self)

    return batch


@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has no connection to lose")
@pytest.mark.parametrize(
    "error", [OperationalError("server closed the connection"), InterfaceError("closed")]
)
def test_a_lost_database(
    monkeypatch: pytest.MonkeyPatch, naps: list[float], error: Exception
) -> None:
    """The relay reconnects; with --once it is an error."""
    sent("")
    Broker.plan = {0: terminate}
    monkeypatch.setattr(Relay, "batch", raising(error, error))
    assert relay() == "1 message published.\n"
    assert naps == [1, 2]
    monkeypatch.setattr(Relay, "batch", raising(error))
    with pytest.raises(CommandError, match="The database 'default' did not respond"):
        relay("--once")


def test_a_lost_race_is_tried_again(monkeypatch: pytest.MonkeyPatch, naps: list[float]) -> None:
    """A lost race is tried again, five times in all with --once."""
    locked = OperationalError("database is locked")
    sent("")
    monkeypatch.setattr(Relay, "batch", raising(*[locked] * 4))
    assert relay("--once") == "1 message published.\n"
    assert naps == [1, 2, 4, 8]
    monkeypatch.setattr(Relay, "batch", raising(*[locked] * 5))
    with pytest.raises(CommandError, match="database is locked"):
        relay("--once")


@pytest.mark.parametrize("arguments", [[], ["--once"]])
def test_not_migrated(monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    """Waiting cannot help."""
    kind = OperationalError if connection.vendor == "sqlite" else ProgrammingError
    monkeypatch.setattr(Relay, "batch", raising(kind("no such table: django_idempotency_message")))
    with pytest.raises(CommandError, match=r"(?s)cannot be read\. Is it migrated\?.*no such table"):
        relay(*arguments)


# ------------------------------------------------------------------------------------------- output


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_on_a_terminal() -> None:
    """Progress is one line, overwritten, and removed at the end."""
    sent("", "", "")
    seen = Terminal()
    relay("--once", "--batch=2", stderr=seen)
    assert "\r\033[K2 messages published." in seen.getvalue()
    assert seen.getvalue().endswith("\r\033[K")


@pytest.mark.parametrize(
    ("arguments", "pace", "lines"),
    [
        ([], 0, []),
        (
            ["--progress"],
            0,
            ["1 message published.", "2 messages published.", "2 messages published."],
        ),
        (
            ["--verbosity=2"],
            0,
            ["1 message published.", "2 messages published.", "2 messages published."],
        ),
        (["--progress"], 60, []),
    ],
)
def test_progress_elsewhere(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], pace: float, lines: list[str]
) -> None:
    """Elsewhere it is printed only if asked for, and at most every few seconds."""
    monkeypatch.setattr(base, "PACE", pace)
    sent("", "")
    seen = StringIO()
    relay("--once", "--batch=1", *arguments, stderr=seen)
    assert seen.getvalue().splitlines() == lines
