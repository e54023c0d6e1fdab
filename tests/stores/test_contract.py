"""The contract is strict: a nearly correct store fails it.

And it loads nothing that it does not use.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from django_idempotency.core.records import Guarantee, Record, Settlement, Status, Ticket
from django_idempotency.stores.base import Guard
from django_idempotency.stores.memory import MemoryStore
from django_idempotency.testing import StoreContract
from django_idempotency.testing.contract.concurrency import together

from . import test_memory


class Contract(test_memory.TestMemoryStore):
    """The memory store's contract, called by hand."""

    __test__ = False
    examples = 200


class Unfenced(MemoryStore):
    """A late owner settles what another owns."""

    def settle(self, ticket: Ticket, settlement: Settlement) -> bool:
        known = self._records.get(ticket.id.int)
        return known is not None and super().settle(ticket, settlement._replace(fence=known.owner))


class Greedy(MemoryStore):
    """Takes a lease that has a moment left."""

    def claim(self, ticket: Ticket) -> Record:
        known = self._records.get(ticket.id.int)
        if known is not None and known.status is Status.RUNNING:
            self._records[ticket.id.int] = known._replace(
                lease_until=known.lease_until - timedelta(milliseconds=1)
            )
        return super().claim(ticket)


class Truthful(MemoryStore):
    """Treats an empty body as missing."""

    def settle(self, ticket: Ticket, settlement: Settlement) -> bool:
        outcome = settlement.outcome
        if outcome is not None and outcome.body == b"":
            settlement = settlement._replace(outcome=outcome._replace(body=b"null"))
        return super().settle(ticket, settlement)


class Generous(MemoryStore):
    """Renews for every caller."""

    def renew(self, tickets: Sequence[Ticket]) -> set[UUID]:
        super().renew(tickets)
        return {ticket.owner for ticket in tickets}


class Forgetful(MemoryStore):
    """Restarts the count of attempts."""

    def claim(self, ticket: Ticket) -> Record:
        return super().claim(ticket)._replace(attempt=1)


class Reentrant(MemoryStore):
    """Lets a call that it guards claim its own key again."""

    guarded: UUID | None = None

    @contextmanager
    def guard(self, ticket: Ticket, **given: Any) -> Iterator[Guard]:
        self.guarded = ticket.id
        with super().guard(ticket, **given) as guard:
            yield guard
        self.guarded = None

    def claim(self, ticket: Ticket) -> Record:
        if ticket.id == self.guarded:
            del self._records[ticket.id.int]
        return super().claim(ticket)


class Overtaken(MemoryStore):
    """An owner that another has overtaken suspends the record."""

    def settle(self, ticket: Ticket, settlement: Settlement) -> bool:
        known = self._records.get(ticket.id.int)
        if (
            known is not None
            and settlement.status is Status.RUNNING
            and settlement.attempt < known.attempt
        ):
            settlement = settlement._replace(fence=known.owner)
        return super().settle(ticket, settlement)


class Evicting(MemoryStore):
    """Forgets every third record that is complete."""

    looks = 0

    def claim(self, ticket: Ticket) -> Record:
        known = self._records.get(ticket.id.int)
        if known is not None and known.status is Status.COMPLETED:
            self.looks += 1
            if self.looks % 3 == 0:
                del self._records[ticket.id.int]
        return super().claim(ticket)


class Stale(MemoryStore):
    """Says of a completed record that it is running, as a replica does that is behind."""

    def claim(self, ticket: Ticket) -> Record:
        record = super().claim(ticket)
        old = record.status is Status.COMPLETED
        return record._replace(status=Status.RUNNING, outcome=None) if old else record


class Racing(MemoryStore):
    """Looks first and writes later, without a lock."""

    def claim(self, ticket: Ticket) -> Record:
        known = self._records.pop(ticket.id.int, None)
        record = super().claim(ticket)
        if known is not None:
            self._records[ticket.id.int] = known
        return record


@pytest.mark.parametrize(
    ("store", "test"),
    [
        (Unfenced, partial(Contract.test_a_late_owner, ttl=86400)),
        (Greedy, Contract.test_at_the_edge),
        (Truthful, Contract.test_outcomes),
        (Generous, Contract.test_renewing_what_is_not_ours),
        (Forgetful, partial(Contract.test_meetings, guarantee=Guarantee.LEASE)),
        (Reentrant, Contract.test_nested),
        (Overtaken, Contract.test_overtaken_before),
        *(
            (store, Contract.test_any_sequence)
            for store in (Unfenced, Truthful, Generous, Forgetful)
        ),
    ],
)
def test_a_wrong_store(store: type[MemoryStore], test: Callable[..., None]) -> None:
    """It fails the test of its fault; most also fail the random sequences."""
    with pytest.raises(AssertionError):
        test(Contract(), store(clock=test_memory.Clock()))


def at_once(store: Any, acts: Any) -> list[Any]:
    return together(store, acts)


def test_a_store_that_races() -> None:
    """Two owners of one key are two too many."""
    with pytest.raises(AssertionError):
        Contract().test_one_key(Racing(), at_once)


@pytest.mark.parametrize("store", [Evicting, Stale, Unfenced])
def test_a_history_that_cannot_be(store: type[MemoryStore]) -> None:
    """No order explains what clients see of a wrong store, and each of its keys is shown with its
    times.
    """
    with pytest.raises(
        AssertionError, match=r"no order explains the marked response(.|\n)*<-- impossible"
    ):
        Contract().test_a_history(store(clock=test_memory.Clock()), at_once)


def test_an_error_elsewhere() -> None:
    """An error in a thread is raised, and leaves no thread waiting."""

    def fail(store: object) -> None:
        raise RuntimeError("as asked")

    with pytest.raises(RuntimeError, match="as asked"):
        together(MemoryStore(), [fail, lambda _: None])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "absent"),
    [
        (
            "import django_idempotency.testing",
            {"pytest", "hypothesis", "django_idempotency.models"},
        ),
        (
            "from django_idempotency.testing import StoreContract",
            {"hypothesis", "django_idempotency.models"},
        ),
    ],
)
def test_what_it_loads(script: str, absent: set[str]) -> None:
    """The contract loads pytest, its random sequences load hypothesis, and neither loads the
    model.
    """
    command = [
        sys.executable,
        "-c",
        f"{script}; import sys; print(*sorted({absent!r} & set(sys.modules)))",
    ]
    assert (
        subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=60
        ).stdout.strip()
        == ""
    )


def test_its_names() -> None:
    """One class is available under each of its names."""
    from django_idempotency.testing import contract

    assert contract.StoreContract is StoreContract
    with pytest.raises(ImportError):
        from django_idempotency.testing import Nothing  # noqa: F401
