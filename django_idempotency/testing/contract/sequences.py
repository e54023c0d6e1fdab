"""Random sequences of every verb, run on the store and on a memory store side by side: they must
never differ.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest

from ...core import rules
from ...core.conclusions import SettledState
from ...core.interventions import CHANGES
from ...core.records import MISSING, Guarantee, Outcome, Record, Status, Ticket
from ...core.rules import Execute
from ...stores.base import BaseStore
from ...stores.memory import MemoryStore
from ..tickets import NOW, make_ticket
from .base import Contract, seconds

if TYPE_CHECKING:
    from hypothesis.stateful import RuleBasedStateMachine

KEYS = ("one", "two")
#: Deadlines lie halfway between the hours that pass, so the time that a real store takes never
#: decides.
HOUR = 3600.0
LEASES = (0, 0.5 * HOUR, 1.5 * HOUR, 3.5 * HOUR)
TTLS = (0.5 * HOUR, 2.5 * HOUR, 10.5 * HOUR)
TOLERANCE = 600.0
MOMENTS = ("lease_until", "created_at", "completed_at", "expires_at")


class Sequences(Contract):
    """The test that needs hypothesis. `examples` and `steps` set its duration; `explores`: new
    sequences each run.
    """

    def test_any_sequence(self, store: BaseStore) -> None:
        """For any sequence of calls, the store responds and remembers as the memory store does."""
        if store.expires_natively:
            self.need("vanish")
        pytest.importorskip("hypothesis", reason="Random sequences need hypothesis.")
        from hypothesis import HealthCheck, Phase, settings
        from hypothesis.stateful import run_state_machine_as_test

        quick = settings(
            max_examples=self.examples,
            stateful_step_count=self.steps,
            derandomize=not self.explores,
            deadline=None,
            database=None,
            phases=(Phase.generate, Phase.shrink) if self.shrinks else (Phase.generate,),
            suppress_health_check=list(HealthCheck),
        )
        run_state_machine_as_test(machine(self, store), settings=quick)


@dataclass
class Pair:
    """The store under test and its model, which receive the same calls."""

    contract: Contract
    store: BaseStore
    now: datetime = NOW
    owners: set[UUID] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.model = MemoryStore(clock=lambda: self.now)
        #: Other sequences of this test use other scopes, so the store need not be emptied.
        self.scope = f"user:{uuid4()}"

    def ticket(self, key: str, **given: Any) -> Ticket:
        ticket = make_ticket(key=key, scope=self.scope, **given)
        self.owners.add(ticket.owner)
        return ticket

    def elapse(self, seconds: float) -> None:
        self.contract.elapse(self.store, seconds)
        self.now += timedelta(seconds=seconds)

    def ask(self, verb: str, *given: Any, model: tuple[Any, ...] | None = None) -> tuple[Any, Any]:
        """Call both in the same way, or the model with its own arguments; compare the results and
        return both.
        """
        found = getattr(self.store, verb)(*given)
        expected = getattr(self.model, verb)(*(model or given))
        if isinstance(expected, Record):
            assert isinstance(found, Record)
            assert self.shown(found, expected) == self.shown(expected, expected)
        else:
            assert found == expected
        return found, expected

    def vanish(self, ticket: Ticket) -> None:
        self.contract.vanish(self.store, ticket)
        self.model._records.pop(ticket.id.int, None)  # noqa: SLF001 - without its knowledge

    def bury(self) -> None:
        """Delete what was written after its retention: a server that expires records may do so at
        any moment.
        """
        if self.store.expires_natively:
            for ticket in map(self.ticket, KEYS):
                record = self.model.get(ticket.id)
                if record is not None and rules.keep_until(record) <= record.read_at:
                    self.vanish(ticket)

    def compare(self) -> None:
        for key in KEYS:
            record_id = self.ticket(key).id
            found = self.store.get(record_id)
            expected = self.model.get(record_id)
            if expected is None or found is None:
                assert found is expected, f"{key}: there is a record on one side only"
            else:
                assert self.shown(found, expected) == self.shown(expected, expected)

    def shown(self, record: Record, model: Record) -> dict[str, Any]:
        """Return what must be equal: moments as seconds from the store's own now, or as the model's
        if near.
        """
        shown = record._asdict()
        del shown["read_at"], shown["joined"], shown["location"]
        kept, needed = (seconds(each, "purge_at") or 0.0 for each in (record, model))
        shown["purge_at"] = kept >= needed - TOLERANCE  # a store may keep it for longer
        if record.owner not in self.owners:
            shown["owner"] = "an operator"
        for name in MOMENTS:
            ahead = seconds(record, name)
            right = seconds(model, name)
            near = ahead is not None and right is not None and abs(ahead - right) < TOLERANCE
            shown[name] = right if near else ahead
        if record.status is not Status.RUNNING:
            del shown["lease_until"]  # it has no meaning any more, and a copy may have an older one
        return shown


@dataclass
class Run:
    """A call that may run or once could, and its record on both sides, whose owner may be a
    different operator.
    """

    ticket: Ticket
    run: Execute
    found: tuple[Record, Record]


# One function a verb.
def machine(contract: Contract, store: BaseStore) -> type[RuleBasedStateMachine]:  # noqa: C901
    """Return hypothesis's state machine for a store."""
    from hypothesis import strategies as st
    from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

    texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8)
    outcomes = st.builds(
        Outcome,
        status=st.integers(100, 599),
        headers=st.lists(st.tuples(texts, texts), max_size=2).map(tuple),
        body=st.sampled_from([MISSING, b""])
        | st.binary(max_size=16)
        | st.binary(min_size=1, max_size=4).map(lambda part: part * 700),
    )
    some_key = st.sampled_from(KEYS)
    some_lease = st.sampled_from(LEASES)
    some_ttl = st.sampled_from(TTLS)
    some_leave = st.sampled_from(
        [SettledState.COMPLETED, SettledState.COMPLETED, SettledState.FREE, SettledState.BOUND]
    )
    latest = st.integers(0, 3)  # counted from the last, which usually owns its key

    class Lockstep(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.pair = Pair(contract, store)
            self.tickets: list[Ticket] = []
            self.runs: list[Run] = []

        def _claim(self, ticket: Ticket) -> None:
            found = self.pair.ask("claim", ticket)
            run = rules.read(found[0], ticket)
            if isinstance(run, Execute):
                self.runs.append(Run(ticket, run, found))

        # Fmt: skip.
        @rule(
            key=some_key,
            body=st.sampled_from([b"a", b"a", b"b"]),
            guarantee=st.sampled_from(Guarantee),
            lease=some_lease,
            ttl=some_ttl,
        )
        def claim(self, **given: Any) -> None:
            ticket = self.pair.ticket(path=f"/{given['ttl']}/", **given)
            self.tickets.append(ticket)
            self._claim(ticket)

        @precondition(lambda self: self.tickets)
        @rule(nth=latest)
        def claim_again(self, nth: int) -> None:
            self._claim(_from_the_end(self.tickets, nth))

        @precondition(lambda self: self.tickets)
        @rule()
        def crash(self) -> None:
            """Let the last caller fall silent, and make another call with the same request."""
            silent = self.tickets[-1]
            self.pair.elapse(4 * HOUR)
            ticket = silent._replace(owner=self.pair.ticket(silent.key).owner)
            self.tickets.append(ticket)
            self._claim(ticket)

        @precondition(lambda self: self.runs)
        @rule(leave=some_leave, outcome=outcomes, ttl=st.none() | some_ttl)
        def settle(self, leave: SettledState, outcome: Outcome, ttl: float | None) -> None:
            self._settle(self.runs[-1], leave, outcome, ttl)

        @precondition(lambda self: len(self.runs) > 1)
        @rule(nth=latest, leave=some_leave)
        def settle_late(self, nth: int, leave: SettledState) -> None:
            self._settle(_from_the_end(self.runs[:-1], nth), leave, contract.outcomes[0], None)

        def _settle(
            self, run: Run, leave: SettledState, outcome: Outcome, ttl: float | None
        ) -> None:
            terms = [
                (
                    run.ticket,
                    contract.settlement(run.ticket, leave, run.run, outcome, ttl=ttl, fence=fence),
                )
                for fence in run.found
            ]
            self.pair.ask("settle", *terms[0], model=terms[1])
            self.pair.bury()

        @precondition(lambda self: self.tickets)
        @rule(nths=st.lists(latest, min_size=1, max_size=4, unique=True))
        def renew(self, nths: list[int]) -> None:
            self.pair.ask("renew", [_from_the_end(self.tickets, nth) for nth in nths])
            self.pair.bury()

        @rule(hours=st.integers(1, 4))
        def elapse(self, hours: int) -> None:
            self.pair.elapse(hours * HOUR)

        @rule(
            event=st.sampled_from(["release", "expire", "erase", "purge", "collide", "vanish"]),
            key=some_key,
        )
        def interfere(self, event: str, key: str) -> None:
            ticket = self.pair.ticket(key, body=b"a")
            if event in CHANGES:
                self._intervene(event, ticket)
            else:
                getattr(self, f"_{event}")(ticket)

        def _intervene(self, verb: str, ticket: Ticket) -> None:
            known = self.pair.model.get(ticket.id)
            audited = list[Record]()
            if (
                verb == "erase"
                and known is not None
                and known.status is Status.RUNNING
                and rules.expired(known)
            ):
                # a store may take it over first, which begins a new life, or lock it, which does
                # not
                return
            found = store.change(ticket.id, CHANGES[verb], audit=audited.append)
            assert found is self.pair.model.change(ticket.id, CHANGES[verb], audit=audited.append)
            if audited:
                ours, expected = audited
                assert self.pair.shown(ours, expected) == self.pair.shown(expected, expected)
            if verb != "release":
                self.pair.bury()

        def _purge(self, ticket: Ticket) -> None:
            if not store.expires_natively:
                store.purge(limit=1000)
                self.pair.model.purge(limit=1000)

        def _collide(self, ticket: Ticket) -> None:
            if self.pair.model.get(ticket.id) is not None:
                self.pair.ask("claim", ticket._replace(scope="another"))

        def _vanish(self, ticket: Ticket) -> None:
            if contract.defines("vanish"):
                self.pair.vanish(ticket)

        @invariant()
        def same(self) -> None:
            self.pair.compare()

        def teardown(self) -> None:
            if contract.defines("vanish"):
                for key in KEYS:
                    contract.vanish(store, self.pair.ticket(key))

    return Lockstep


def _from_the_end(items: list[Any], nth: int) -> Any:
    return items[-1 - nth % len(items)]
