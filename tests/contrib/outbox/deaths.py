"""A program whose children are relays that die: `python -m tests.contrib.outbox.deaths NAME`.

Prints what happened as JSON.

It forks, so that each death costs milliseconds. The program itself opens no connection.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import django

#: How a child ends that was killed.
KILLED = -signal.SIGKILL


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def to_file(message: Any) -> None:
    """Write a message's number to the file, and die before that, or after it, if its topic says
    so.
    """
    if message.topic == "kills":
        die()
    file = os.open(os.environ["PUBLISHED_FILE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{message.payload}\n".encode())
    os.close(file)
    if message.topic == "kills after":
        die()


def published() -> list[int]:
    return [int(line) for line in Path(os.environ["PUBLISHED_FILE"]).read_text().splitlines()]


def empty() -> None:
    Path(os.environ["PUBLISHED_FILE"]).write_text("")


def child(work: Callable[[], object]) -> int:
    """Run work in a child, and return its exit code; that of a signal is negative."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 0
        try:
            work()
        except SystemExit:
            code = 3
        except Exception as error:  # noqa: BLE001 - the parent is told
            sys.stderr.write(f"{error!r}\n")
            code = 2
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def asked(question: Callable[[], Any]) -> Any:
    """Return what a child finds out."""
    reading, writing = os.pipe()
    code = child(lambda: os.write(writing, json.dumps(question(), default=str).encode()))
    os.close(writing)
    with os.fdopen(reading) as answer:
        assert code == 0
        return json.loads(answer.read())


def relay(*options: str) -> None:
    from django.core.management import CommandError, call_command

    with suppress(CommandError):  # some failed
        call_command(
            "idempotency_relay", "--once", f"--publisher={__name__}.to_file", *options, verbosity=0
        )


def send(messages: list[tuple[str, str]]) -> None:
    """Send messages of a topic and a key; the payload is the number."""
    from django.db import transaction

    from django_idempotency.contrib import outbox
    from django_idempotency.contrib.outbox.models import Message

    Message.objects.all().delete()
    for number, (topic, key) in enumerate(messages):
        with transaction.atomic():
            outbox.send(topic, number, key=key)


def left() -> list[dict[str, Any]]:
    from django_idempotency.contrib.outbox.models import Message

    found: Any = Message.objects.order_by("pk").values(
        "payload", "attempts", "unended", "last_error", "not_before"
    )
    return list(found)


def make_due() -> None:
    """End the back-off of all that is not set aside."""
    from django_idempotency.contrib.outbox.models import SET_ASIDE, Message
    from django_idempotency.stores.base import utcnow

    Message.objects.filter(not_before__lt=SET_ASIDE).update(not_before=utcnow())


def a_killer(topic: str) -> dict[str, Any]:
    """Publish beside a message that kills, until a relay survives and nothing is due."""
    child(
        lambda: send(
            [("t", ""), ("t", "a"), (topic, "b"), ("t", "a"), ("t", "b"), ("t", ""), ("t", "a")]
        )
    )
    codes, seen = [], []
    for _ in range(16):
        codes.append(child(relay))
        seen.append(published())
        if codes[-1] == KILLED:
            continue  # the next relay comes before the back-off has ended
        if codes[-2] != KILLED:
            break
        child(make_due)
    return {"codes": codes, "published": seen, "left": asked(left)}


def borders() -> dict[str, Any]:
    """Die before the n-th statement or COMMIT of a relay, and after it, for each n; then let
    another relay finish.
    """
    found = []
    for when in ("before", "after"):
        for n in range(1, 100):
            empty()
            child(lambda: send([("t", "a"), ("t", ""), ("t", "a"), ("t", "b")]))
            code = child(partial(relay_until, n, when))
            first = published()
            child(finish)
            again = published()[len(first) :]
            found.append(
                {
                    "when": when,
                    "n": n,
                    "code": code,
                    "first": first,
                    "again": again,
                    "left": asked(left),
                }
            )
            if code != KILLED:
                break
    return {"borders": found}


def finish() -> None:
    make_due()
    relay()


def relay_until(n: int, when: str) -> None:
    """Run a relay that dies at its n-th statement or COMMIT."""
    from django.db import connections

    connection: Any = connections["default"]
    done = 0

    def counted(act: Callable[[], Any]) -> Any:
        nonlocal done
        done += 1
        if done == n and when == "before":
            die()
        result = act()
        if done == n:
            die()
        return result

    commit = connection._commit
    connection._commit = lambda: counted(commit)
    with connection.execute_wrapper(lambda execute, *given: counted(lambda: execute(*given))):
        relay()


if __name__ == "__main__":
    django.setup()
    names: dict[str, Callable[[], dict[str, Any]]] = {
        "kills": lambda: a_killer("kills"),
        "kills after": lambda: a_killer("kills after"),
        "borders": borders,
    }
    empty()
    sys.stdout.write(json.dumps(names[sys.argv[1]]()))
