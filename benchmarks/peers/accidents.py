"""What happens to a charge: each accident is made to happen to each package, and the charges are
counted.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from django.db import connection

from testproject.payments.models import Effect

from .libraries import Answers, Client, Library
from .settings import LOCK
from .views import afterwards

#: Seconds: longer than each package's lock, and the most that a request waits for another.
LAPSED, PATIENCE = LOCK + 0.3, 20


class Seen(NamedTuple):
    """What an accident led to: the charges, or for a foreign request the responses that it should
    not have got.
    """

    charges: int
    right: int
    statuses: tuple[int, ...]


class Stage:
    def __init__(self) -> None:
        self.answers, self.client, self.other = Answers(), Client("one"), Client("other")

    def send(
        self, library: Library, key: str, client: Client | None = None, *, token: bool = True
    ) -> int:
        return (
            (client or self.client)
            .send(self.answers[library], library, key, token=token)
            .status_code
        )


def concurrent(stage: Stage, library: Library) -> Seen:
    """Send the same request again while the first one is at work."""
    return overlapping(stage, library, 0)


def slow(stage: Stage, library: Library) -> Seen:
    """Send the same request again when the first one has been at work for longer than its lock."""
    return overlapping(stage, library, LAPSED)


def overlapping(stage: Stage, library: Library, wait: float) -> Seen:
    key, entered, leave, seen = library.key(), threading.Event(), threading.Event(), []
    first = [True]

    def linger() -> None:
        if first.pop() if first else False:
            entered.set()
            leave.wait(PATIENCE)

    def work() -> None:
        seen.append(stage.send(library, key))
        connection.close()

    with counted() as charges, happening(linger):
        worker = threading.Thread(target=work)
        worker.start()
        entered.wait(PATIENCE)
        time.sleep(wait)
        # Who waits for the first one gets its response then.
        threading.Timer(0.5, leave.set).start()
        seen.append(stage.send(library, key))
        worker.join()
    return Seen(charges(), 1, tuple(seen))


def failure(stage: Stage, library: Library) -> Seen:
    """Let the view raise after its write, and retry until the lock has lapsed."""
    key = library.key()

    def fail() -> None:
        raise RuntimeError("the view fails after its write")

    with counted() as charges:
        with happening(fail):
            statuses = [stage.send(library, key)]
        statuses += retried(stage, library, key)
    return Seen(charges(), 1, tuple(statuses))


def death(stage: Stage, library: Library) -> Seen:
    """Let the worker die after its write, and retry until the lock has lapsed."""
    key = library.key()
    environment = {**os.environ, "DATABASE_NAME": str(connection.settings_dict["NAME"])}
    with counted() as charges:
        command = [
            sys.executable,
            "-m",
            "benchmarks.peers.dying",
            library.package,
            library.name,
            key,
        ]
        assert subprocess.run(command, env=environment, check=False).returncode == DEAD
        statuses = retried(stage, library, key)
    return Seen(charges(), 1, tuple(statuses))


#: The exit code of a worker that has died where it should.
DEAD = 77


def retried(stage: Stage, library: Library, key: str) -> list[int]:
    """Retry now, and when the lock has lapsed."""
    statuses = [stage.send(library, key)]
    if statuses[0] != 201:
        time.sleep(LAPSED)
        statuses.append(stage.send(library, key))
    return statuses


def neighbour(stage: Stage, library: Library) -> Seen:
    """Let another user send the same key and body: that is another request."""
    key = library.key()
    with counted() as charges:
        statuses = stage.send(library, key), stage.send(library, key, stage.other)
    return Seen(charges(), 2, statuses)


def stranger(stage: Stage, library: Library) -> Seen:
    """Send a known key without a token: only a refusal is right."""
    key = library.key()
    statuses = stage.send(library, key), stage.send(library, key, token=False)
    return Seen(int(statuses[1] == 201), 0, statuses)


Accident = Callable[[Stage, Library], Seen]


class Kind(NamedTuple):
    """One accident: its title, and what is said of a package under which it goes wrong, or whose
    retries stay refused.
    """

    title: str
    happen: Accident
    wrong: str
    refused: str = ""

    def said(self, seen: Seen) -> str:
        if seen.charges != seen.right:
            return self.wrong
        return self.refused if seen.statuses[-1] == 409 else ""


KINDS = (
    Kind("Two requests at once: charges", concurrent, "runs twice at once"),
    Kind(
        "The first one outlasts its lock, and a retry arrives: charges",
        slow,
        "runs twice past its lock",
    ),
    Kind(
        "The view fails after its write, and retries follow: charges",
        failure,
        "keeps the write of a 500",
        "refuses retries after a 500",
    ),
    Kind(
        "The worker dies after its write, and retries follow: charges",
        death,
        "charges again after a crash",
        "refuses retries after a crash",
    ),
    Kind("Another user has the same key: charges", neighbour, "keys are not a user's own"),
    Kind("A known key without a token: responses given", stranger, "replays before authentication"),
)


@contextmanager
def happening(accident: Callable[[], object]) -> Iterator[None]:
    afterwards.happens = accident
    try:
        yield
    finally:
        afterwards.happens = bool


@contextmanager
def counted() -> Iterator[Callable[[], int]]:
    """Count the charges that are made from here on."""
    before = Effect.objects.count()
    yield lambda: Effect.objects.count() - before
