"""Several relays at once, each a process: they share the work, keep the order, and may die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connection

from django_idempotency.contrib.outbox.models import Message

from ...faults.plans import until
from .helpers import committed, sent, waiting
from .publishers import FILE, PAUSE

pytestmark = [pytest.mark.faults, committed]

ROOT = Path(__file__).resolve().parents[3]
Start = Callable[..., subprocess.Popen[str]]


@dataclass(frozen=True)
class Published:
    """A line of the file that publishers write."""

    process: int
    key: str
    number: int
    message_id: str


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "published"
    file.touch()
    return file


@pytest.fixture
def start(file: Path) -> Iterator[Start]:
    """Return a function that starts a relay. All are killed in the end."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, pause: float = 0) -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "testproject.settings",
            "DATABASE_NAME": str(connection.settings_dict["NAME"]),
            FILE: str(file),
            PAUSE: str(pause),
        }
        command = [
            sys.executable,
            "manage.py",
            "idempotency_relay",
            "--publisher=tests.contrib.outbox.publishers.to_file",
            *arguments,
        ]
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline().startswith("Publishing the outbox of 'default'.")
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=10)


def read(file: Path) -> list[Published]:
    lines = [line.split() for line in file.read_text().splitlines()]
    return [
        Published(int(process), key, int(number), message)
        for process, key, number, message in lines
    ]


def by_key(published: list[Published]) -> dict[str, list[int]]:
    numbers = defaultdict(list)
    for each in published:
        numbers[each.key].append(each.number)
    return numbers


def keys(count: int) -> list[str]:
    """Return keys of all lengths: none, a long one, and short ones."""
    return ["" if n % 4 == 0 else "long" if n % 4 == 1 else f"key-{n % 13}" for n in range(count)]


def stop(process: subprocess.Popen[str], number: signal.Signals = signal.SIGTERM) -> str:
    process.send_signal(number)
    said, _ = process.communicate(timeout=30)
    assert process.returncode == 0, said
    return said


def test_they_share_the_work(start: Start, file: Path) -> None:
    """Each message goes once, those of a key in order, by more than one relay; so do messages that
    arrive meanwhile.
    """
    relays = [start("--poll=0.02", "--batch=7", pause=0.002) for _ in range(3)]
    ids = sent(*keys(200))
    until(lambda: len(read(file)) > 50, "some are published")
    ids += sent(*keys(100))
    until(lambda: not Message.objects.exists(), "all are published")
    for relay in relays:
        stop(relay)
    published = read(file)
    assert Counter(each.message_id for each in published) == Counter(map(str, ids))
    in_order = by_key(published)
    del in_order["-"]
    for key, numbers in in_order.items():
        assert numbers == [
            number
            for number, sent_to in [*enumerate(keys(200)), *enumerate(keys(100))]
            if sent_to == key
        ]
    if connection.vendor != "sqlite":  # its lock may go to the same one again and again
        assert len({each.process for each in published}) > 1


@pytest.mark.either_server
def test_a_failing_key_does_not_stop_the_others(start: Start, file: Path) -> None:
    """The key waits, with all its messages, while others continue."""
    relays = [start("--poll=0.02", "--batch=5") for _ in range(2)]
    sent("bad", *keys(30), "bad", *keys(30), "bad")
    until(lambda: len(read(file)) == 60, "all others are published")
    until(lambda: Message.objects.exclude(key="bad").count() == 0, "and forgotten")
    for relay in relays:
        stop(relay)
    assert [key for key, _ in waiting()] == ["bad"] * 3
    first, *behind = Message.objects.order_by("pk")
    assert first.attempts > 0
    assert first.last_error == "ValueError: no such exchange"
    assert [message.attempts for message in behind] == [0, 0]


@pytest.mark.either_server
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopped(start: Start, file: Path, number: signal.Signals) -> None:
    """The current message ends, what was published is deleted, the rest is kept, and the relay says
    how many.
    """
    sent(*[""] * 50)
    relay = start("--poll=0.02", pause=0.1)
    until(lambda: len(read(file)) > 2, "some are published")
    said = stop(relay, number)
    published = [each.number for each in read(file)]
    assert f"{len(published)} messages published." in said
    assert [number for _, number in waiting()] == list(range(len(published), 50))
    assert published == list(range(len(published)))


@pytest.mark.sqlite
def test_killed(start: Start, file: Path) -> None:
    """What it published since its last COMMIT is published again by the next, under the same ids;
    nothing is lost.
    """
    ids = [str(message_id) for message_id in sent(*["a"] * 30)]
    relay = start("--poll=0.02", "--batch=30", pause=0.05)
    until(lambda: len(read(file)) >= 1, "some are published")
    relay.kill()
    relay.wait(10)
    once = len(read(file))
    assert waiting()  # in the middle of a batch
    stop_when_empty(start("--poll=0.02"))
    published = read(file)
    assert {each.message_id for each in published} == set(ids)
    again = [each.number for each in published[once:]]
    assert again == list(range(again[0], 30))  # from what was not committed, in order
    assert again[0] < once


def stop_when_empty(relay: Any) -> None:
    until(lambda: not Message.objects.exists(), "all are published")
    stop(relay)


@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has no connection to lose")
def test_cut_off(start: Start, file: Path) -> None:
    """The database ends its session, in the middle of a batch and while it waits: the relay
    reconnects.
    """
    ids, others = sent(*["a"] * 20), sessions()  # what earlier tests have left running
    relay = start("--poll=0.02", "--batch=20", pause=0.05)
    until(lambda: len(read(file)) >= 1, "some are published")
    cut_off(sessions() - others)
    until(lambda: not Message.objects.exists(), "all are published")
    assert len(read(file)) > 20
    assert {each.message_id for each in read(file)} == set(map(str, ids))
    cut_off(sessions() - others)
    (last,) = sent("b")
    until(lambda: read(file)[-1].message_id == str(last), "it is there again")
    until(lambda: not Message.objects.exists(), "and forgets")
    stop(relay)


def sessions() -> set[int]:
    """List the database sessions of all others."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND "
                "pid <> pg_backend_pid()"
            )
        else:
            cursor.execute(
                "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND "
                "id <> CONNECTION_ID()"
            )
        return {session for (session,) in cursor.fetchall()}


def cut_off(theirs: set[int]) -> None:
    """End these database sessions."""
    with connection.cursor() as cursor:
        for session in theirs:
            with suppress(OperationalError):  # it has ended already
                cursor.execute(
                    "SELECT pg_terminate_backend(%s)"
                    if connection.vendor == "postgresql"
                    else "KILL %s",
                    [session],
                )


@pytest.mark.either_server
def test_stopped_while_it_waits(start: Start, file: Path) -> None:
    """It stops at once, however long --poll is."""
    sent("")
    relay = start("--poll=600")
    until(lambda: not Message.objects.exists(), "there is nothing more to do")
    assert "1 message published." in stop(relay)
