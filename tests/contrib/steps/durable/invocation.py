"""One invocation of a durable execution, in its own process, on the test database.

    python -m tests.contrib.steps.durable.invocation NAME END [VERB NUMBER]

END is "sleep", "hang" or "return". It hangs before the store carries out the VERB, such as
"settle", with that NUMBER. It reports its progress on standard output.
"""

from __future__ import annotations

import sys
import time
from typing import Any
from unittest.mock import patch

import django


class Asleep(BaseException):
    """This invocation has ended, but the execution has not."""


def say(what: str) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def hang() -> None:
    say("hangs")
    time.sleep(60)


def main(name: str, end: str, verb: str = "get", number: str = "0") -> None:
    django.setup()
    from django_idempotency import current_operation, idempotent_function
    from django_idempotency.contrib.steps.durable import execution
    from django_idempotency.errors import InProgress
    from django_idempotency.stores.orm import ORMStore
    from testproject.payments.models import Effect

    def ask(takeover: Any) -> Any:
        say("asked")
        return takeover.run()

    @idempotent_function(
        key="order", key_prefix="charge", guarantee="lease", lease=30, on_takeover=ask
    )
    def charge(order: int) -> str:
        operation = current_operation()
        assert operation is not None
        Effect.objects.create(label=name, attempt=operation.attempt)
        if end == "sleep":
            raise Asleep
        if end == "hang":
            hang()
        return "charged"

    asked, carry_out = 0, getattr(ORMStore, verb)

    def hanging(*arguments: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked == int(number):
            hang()
        return carry_out(*arguments)

    with patch.object(ORMStore, verb, hanging), execution(name, suspended_by=Asleep):
        try:
            say(charge(17))
        except Asleep:
            say("sleeps")
        except InProgress:
            say("in progress")


if __name__ == "__main__":
    main(*sys.argv[1:])
