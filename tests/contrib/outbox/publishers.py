"""Publishers by dotted path. Those of other processes write what they publish to a file."""

from __future__ import annotations

import os
import time
from typing import Any

from django_idempotency.errors import BrokerUnavailable

FILE, PAUSE = "PUBLISHED_FILE", "PUBLISHER_PAUSE"


def to_file(message: Any) -> None:
    """Write `process key number message_id`, as long as the key is not bad."""
    if message.key == "bad":
        raise ValueError("no such exchange")
    line = f"{os.getpid()} {message.key or '-'} {message.payload} {message.message_id}\n"
    file = os.open(os.environ[FILE], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line.encode())
    os.close(file)
    time.sleep(float(os.environ.get(PAUSE, "0")))


class Broker:
    """A broker in memory, which may be unreachable. `journal` lists what publishers did."""

    journal: list[Any]
    #: What to do before the n-th message, counted from 0; an exception that it returns is raised.
    plan: dict[int, Any]
    #: The number of connections that fail.
    away: int

    @classmethod
    def reset(cls) -> None:
        cls.journal, cls.plan, cls.away = [], {}, 0


class Publisher:
    def __init__(self) -> None:
        if Broker.away:
            Broker.away -= 1
            Broker.journal.append("refused")
            raise BrokerUnavailable("Connection refused by amqp://shop:geheim@host/")
        Broker.journal.append("opened")

    def publish(self, message: Any) -> None:
        number = sum(isinstance(entry, int) for entry in Broker.journal)
        act = Broker.plan.pop(number, None)
        error = act() if act else None
        if error is not None:
            raise error
        Broker.journal.append(message.payload)

    def close(self) -> None:
        Broker.journal.append("closed")
        raise ValueError("closed already")


class Entered(Publisher):
    def __enter__(self):
        Broker.journal.append("entered")
        return self

    def __exit__(self, *_: object) -> None:
        Broker.journal.append("left")


def broken() -> None:
    raise TypeError


class Unready:
    def __init__(self) -> None:
        raise ValueError("no password")

    def publish(self, message: Any) -> None: ...


class Silent: ...
