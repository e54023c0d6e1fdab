"""What a subclass of the contract declares about its store, and the helpers that the tests
share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
from contextlib import AbstractContextManager
from typing import Any, ClassVar
from uuid import UUID, uuid4

import pytest

from ...core import conclusions, rules
from ...core.conclusions import SettledState
from ...core.interventions import CHANGES, Intervention
from ...core.records import MISSING, Outcome, Record, Settlement, Ticket
from ...stores.base import BaseStore, innermost
from ..tickets import make_ticket

#: Responses that must come back unchanged, and must not be confused with a missing response or with
#: each other.
OUTCOMES = (
    Outcome(
        status=201,
        headers=(("Content-Type", "application/json"), ("Location", "/1/")),
        body=b'{"id": 1}',
    ),
    # values that are falsy, in Python or in JSON
    Outcome(status=204, body=b""),  # an empty response
    Outcome(status=200, body=MISSING),  # a response that was not stored
    Outcome(status=200, headers=(("X-Empty", ""),), body=MISSING),
    *(
        Outcome(status=200, body=body)
        for body in (b"0", b"null", b"false", b'""', b"[]", b"{}", b" ", b"None", b"\0")
    ),
    # values that are not text
    Outcome(status=200, body=bytes(range(256)) * 4),
    *(
        Outcome(status=200, body=body)
        for body in (b"\xff\xfe", b"\xed\xa0\x80", b"\0a\0", b"a\r\n\r\n", b"\\x00", b"%s")
    ),
    Outcome(status=200, headers=(("Content-Encoding", "gzip"),), body=b"\x1f\x8b\x08\x00"),
    Outcome(status=200, body=b"x\x9c\x03\x00\x00\x00\x00\x01"),  # an empty zlib stream
    # headers
    Outcome(status=302, headers=(("X-Empty", ""),), body=b"x" * 100_000),
    Outcome(
        status=200,
        headers=(("X-Name", "Grüße, 東京 🎌"), ("Link", "</a>"), ("Link", "</b>")),
        body=b"\x1f\x8b",
    ),
    Outcome(status=599, headers=(("x-quotes", "\"'\\ %s {} \t"),), body=b"'"),
)


class Contract:
    """What is known of the store under test. `elapse` and the fixture `store` are required; the
    rest completes it.
    """

    outcomes: ClassVar[tuple[Outcome, ...]] = OUTCOMES
    #: Trips by name of a step (`costs.STEPS`). If empty, nothing is counted.
    costs: ClassVar[Mapping[str, int]] = {}
    #: Does the store's time pass only in `elapse()`?
    frozen: ClassVar[bool] = False
    #: Do other threads see what the store writes? They do not inside a test's transaction.
    shared: ClassVar[bool] = True
    #: How many act at once.
    claimers: ClassVar[int] = 50
    #: The number of random sequences, and the steps in each.
    examples: ClassVar[int] = 30
    steps: ClassVar[int] = 15
    #: Is the shortest failing sequence searched for? It takes minutes; use it when you repair a
    #: store.
    shrinks: ClassVar[bool] = False
    #: Does each run use new random sequences?
    explores: ClassVar[bool] = False

    # ---------------------------------------------------------------------------------------- hooks

    def elapse(self, store: Any, seconds: float) -> None:
        """Let time pass for the store, without sleeping."""
        raise NotImplementedError

    def elsewhere(self, store: Any) -> Callable[[], BaseStore] | None:
        """Return how another process creates the same store: a callable that can be pickled, or
        `None` if it cannot.

        The process has our environment, and sets Django up if DJANGO_SETTINGS_MODULE names its
        settings.
        """
        return None

    def expected_costs(self) -> Mapping[str, int]:
        """Return `costs`, or the costs on the server of this run."""
        return self.costs

    def trips(self, store: Any) -> AbstractContextManager[Sized]:
        """Collect the store's trips to its server while the block runs, one entry each."""
        raise NotImplementedError

    def vanish(self, store: Any, ticket: Ticket) -> None:
        """Delete a ticket's record without the store's knowledge, as a purge, an eviction or a
        person would.
        """
        raise NotImplementedError

    # -------------------------------------------------------------------------------------- helpers

    def defines(self, hook: str) -> bool:
        return getattr(type(self), hook) is not getattr(Contract, hook)

    def need(self, hook: str) -> None:
        if not self.defines(hook):
            pytest.skip(f"{type(self).__name__} does not define {hook}().")

    def claim(self, store: BaseStore, ticket: Ticket) -> rules.Execute:
        """Claim a record that has no other owner."""
        run = rules.read(store.claim(ticket), ticket)
        assert isinstance(run, rules.Execute), (
            f"this ticket does not own its record, but reads {run}"
        )
        return run

    def lapsed(self, store: BaseStore, **given: Any) -> tuple[Ticket, rules.Execute]:
        """Claim a record, and let its lease end."""
        ticket = make_ticket(**given)
        run = self.claim(store, ticket)
        self.elapse(store, ticket.lease + 1)
        return ticket, run

    def leave(
        self,
        store: BaseStore,
        ticket: Ticket,
        leave: SettledState,
        outcome: Outcome | None = None,
        **given: Any,
    ) -> bool:
        """Settle a record that the ticket owns, or can own."""
        record = store.claim(ticket)
        run = rules.read(record, ticket)
        assert isinstance(run, rules.Execute), (
            f"this ticket does not own its record, but reads {run}"
        )
        return self.settle(store, ticket, leave, run, outcome, **{"fence": record, **given})

    def settle(self, store: BaseStore, ticket: Ticket, *given: Any, **named: Any) -> bool:
        """Settle as `settlement()` says, which takes the rest."""
        return store.settle(ticket, self.settlement(ticket, *given, **named))

    def settlement(
        self,
        ticket: Ticket,
        leave: SettledState,
        run: rules.Execute,
        outcome: Outcome | None = None,
        **given: Any,
    ) -> Settlement:
        """Say what is written. `given`: a `ttl`, and the `fence`."""
        terms = {"fence": None, "ttl": None, **given}
        settlement = conclusions.settlement(leave, ticket, run, outcome=outcome, **terms)
        assert settlement is not None
        return settlement

    def changed_while(
        self,
        store: BaseStore,
        monkeypatch: pytest.MonkeyPatch,
        ticket: Ticket,
        verb: str,
        act: Callable[[], object],
    ) -> tuple[Intervention, list[Record]]:
        """Change a record by hand while something happens to it, between the look and the write.

        Return what was audited.
        """
        inner = innermost(store)
        looked = list[Record]()
        audited = list[Record]()
        look = inner.get

        def look_once(record_id: UUID) -> Record | None:
            record = look(record_id)
            if record is not None and not looked:
                looked.append(record)
                act()
            return record

        monkeypatch.setattr(inner, "get", look_once)
        found = store.change(ticket.id, CHANGES[verb], audit=audited.append)
        if not looked:
            pytest.skip(f"{type(inner).__name__} reads the record under its lock.")
        return found, audited

    def done(self, store: BaseStore, ticket: Ticket, run: rules.Execute, **given: Any) -> bool:
        """Settle a run as completed, with the first of the outcomes."""
        return self.settle(store, ticket, SettledState.COMPLETED, run, self.outcomes[0], **given)

    def complete(self, store: BaseStore, ticket: Ticket, **given: Any) -> bool:
        return self.leave(store, ticket, SettledState.COMPLETED, self.outcomes[0], **given)

    def known(self, store: BaseStore, ticket: Ticket) -> Record:
        """Read a record that is there, without a claim."""
        record = store.get(ticket.id)
        assert record is not None
        return record

    def stored(self, store: BaseStore, ticket: Ticket) -> Record:
        """Read a bound record as another request would, without being able to take it."""
        return store.claim(ticket._replace(owner=uuid4(), digest=b"never".ljust(32)))


def seconds(record: Record, name: str) -> float | None:
    """Return how far one of a record's moments lies ahead, by the store's clock.

    `None`: it is not set.
    """
    moment = getattr(record, name)
    return None if moment is None else float((moment - record.read_at).total_seconds())
