"""What the clients ask for. A new workload is a class here, and its row in WORKLOADS."""

from __future__ import annotations

import io
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Protocol

import httpx

#: Names the folder of the provider's books.
FOLDER = "CHAOS_PROVIDER"
#: Seconds for all that is left of a run's operations.
PATIENCE = 120


class Workload(Protocol):
    """One kind of operation, which a client repeats under one key until it is finished."""

    #: Are an operation's effects committed with its response, so that responses say how many there
    #: are?
    atomic: bool

    def send(self, client: httpx.Client, key: str) -> httpx.Response:
        """Send the request of an operation."""

    def is_finished(self, response: httpx.Response) -> bool:
        """Is this what the client waits for?"""

    def is_abandoned(self, key: str) -> bool:
        """Do the clients of an operation die after their first request?"""

    def finish(self) -> str:
        """Finish what is left, when no server and no client runs any more. Return what that was."""

    def effects(self) -> Mapping[str, int]:
        """Return how many effects each key has left."""

    def broken(self, keys: Collection[str]) -> Iterator[str]:
        """Yield what else is wrong."""


def headers(key: str) -> dict[str, str]:
    return {"Authorization": f"Token {TOKEN}", "Idempotency-Key": key}


TOKEN = "0" * 40


def prepare() -> None:
    """Write into the new database what the requests need."""
    from django.contrib.auth.models import User
    from rest_framework.authtoken.models import Token

    Token.objects.create(key=TOKEN, user=User.objects.create(username="asha"))


def counted(label: str) -> Counter[str]:
    from testproject.payments.models import Effect

    return Counter(Effect.objects.filter(label=label).values_list("idempotency_key", flat=True))


class Charges:
    """One charge, through REST framework, its token authentication and `atomic`."""

    atomic = True

    def send(self, client: httpx.Client, key: str) -> httpx.Response:
        return client.post(
            "/api/charges/", json={"amount": 2499, "currency": "inr"}, headers=headers(key)
        )

    def is_finished(self, response: httpx.Response) -> bool:
        return response.status_code == 201

    def is_abandoned(self, key: str) -> bool:
        return False

    def finish(self) -> str:
        return ""

    def effects(self) -> Mapping[str, int]:
        return counted("charge")

    def broken(self, keys: Collection[str]) -> Iterator[str]:
        from testproject.payments.models import Charge

        if halves := counted("charge").total() - Charge.objects.count():
            yield f"{halves} effects without their charge, or the reverse if negative"


class Sagas:
    """Three steps under `lease`, here and elsewhere. Some give up; some lose their clients, and a
    command finishes them.
    """

    atomic = False

    def send(self, client: httpx.Client, key: str) -> httpx.Response:
        return client.post("/sagas/", headers=headers(key))

    def is_finished(self, response: httpx.Response) -> bool:
        return response.status_code in (201, 410) or (
            response.status_code == 409
            and response.json().get("code") in ("operation-cancelled", "operation-undone")
        )

    def is_abandoned(self, key: str) -> bool:
        from . import sagas

        return sagas.is_abandoned(key)

    def finish(self) -> str:
        """Run `idempotency_resume operations`, and give up by hand what waits, until the leases of the dead
        are over.
        """
        from django.core.management import CommandError, call_command
        from django.db.models.functions import Now

        from django_idempotency.contrib.steps.models import Step

        due, said, deadline = (
            Step.objects.exclude(due_at=None),
            io.StringIO(),
            time.monotonic() + PATIENCE,
        )
        left = due.count()
        while due.update(due_at=Now()) and time.monotonic() < deadline:
            with suppress(CommandError):  # what failed is tried again
                call_command("idempotency_resume", "operations", stdout=said)
            for record in set(due.exclude(name="").values_list("record", flat=True)):
                with suppress(CommandError):
                    call_command(
                        "idempotency_resume", "operations", "--undo", str(record), stdout=said
                    )
            time.sleep(0.5)
        return f"{left - due.count()} of {left} operations that were left"

    def effects(self) -> Mapping[str, int]:
        return counted("order")

    def broken(self, keys: Collection[str]) -> Iterator[str]:
        from django_idempotency.contrib.steps.models import Step

        from . import sagas

        done: dict[str, Counter[str]] = defaultdict(Counter, sagas.provider().all_effects())
        for label in ("order", "undo order"):
            for key, number in counted(label).items():
                done[key][label] = number
        for key in keys:
            promised = [SUCCEEDED, GIVEN_UP] if self.is_abandoned(key) else [SUCCEEDED]
            if sagas.is_sold_out(key):
                promised = [GIVEN_UP]
            if self.is_abandoned(key):
                promised += BROKEN_OFF
            if done[key] not in promised:
                yield f"{dict(done[key])}: {key}"
        yield from (
            f"no end of {row.name!r}: {row.record}" for row in Step.objects.exclude(due_at=None)
        )


SUCCEEDED = Counter(["order", "pay", "reserve"])
GIVEN_UP = Counter(["order", "pay", "reserve", "undo reserve", "undo order"])
#: What a command undid whose clients never sent it again.
BROKEN_OFF = [Counter(), Counter(["order", "undo order"]), Counter(["order", "pay", "undo order"])]

WORKLOADS: dict[str, Workload] = {"charges": Charges(), "sagas": Sagas()}
