"""A world with one key, two clients, a database and a provider, in which every decision is made by
the core's own functions.

A state says what the database shows, what of that is on disk, who holds the row's lock, what the
provider has done, and how far each client is. `steps()` gives each state that can follow: somebody
does the next thing, or something fails.

    claim ── lock ── act there ── write here ── settle + COMMIT          `atomic`
    claim ───────── act there ── write here ── settle                    `lease`: each commits by itself

Each try of a client is a request of its own, with an owner token of its own. A lease ends whenever
that does harm: each claim is made both before and after its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django_idempotency.core import conclusions, rules
from django_idempotency.core.conclusions import Conclusion, Rollback, SettledState, WorkResult
from django_idempotency.core.records import Guarantee, Outcome, Record, Settlement, Status, Ticket
from django_idempotency.core.rules import Execute, Replay
from django_idempotency.testing.tickets import NOW, make_ticket

CREATED = Outcome(status=201)
#: How many requests each client sends, one after the other; and how much may fail in one history,
#: altogether.
TRIES, FAULTS = (2, 1), 2
LEASE = timedelta(seconds=30)


@dataclass(frozen=True, kw_only=True)
class Code:
    """What decides. A mutation replaces one of these, and the model must notice."""

    read: Callable[[Record, Ticket], Any] = rules.read
    takeable: Callable[[Record, Ticket], bool] = rules.takeable
    untouched: Callable[[Record, Record, Ticket, Settlement], bool] = rules.untouched
    operation_of: Callable[[Record, Execute], UUID] = rules.operation_of
    claimed: Callable[..., Record] = conclusions.claimed
    conclude: Callable[..., Conclusion] = conclusions.conclude
    settlement: Callable[..., Settlement | None] = conclusions.settlement
    settled: Callable[..., Record] = conclusions.settled
    takeover: Callable[..., Settlement] = conclusions.takeover
    #: Does a settle change only a record of its owner? Is a claim on disk before the work? Do
    #: writes and record share a COMMIT?
    fenced: bool = True
    durable_claims: bool = True
    one_commit: bool = True


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is examined. `there`: the work acts at the provider each time, asks first (`asks`), or
    passes its derived key.
    """

    guarantee: Guarantee
    there: str
    on_failure: str = "free"
    code: Code = field(default_factory=Code)

    @property
    def atomic(self) -> bool:
        return self.guarantee is Guarantee.ATOMIC


class Client(NamedTuple):
    """One client, and its request that is under way."""

    phase: str = "idle"
    tries: int = 0
    #: The record as its request has claimed it, and how it runs.
    seen: Record | None = None
    run: Execute | None = None
    #: Has its transaction written here? Is that transaction gone, without its knowledge?
    wrote: bool = False
    lost: bool = False
    #: How its work has ended; what is left to be written after a rollback.
    pending: Settlement | None = None
    told: str = ""
    #: Has its request lost the row between claim and lock, and claimed again? It does so once.
    again: bool = False


class World(NamedTuple):
    """A state."""

    record: Record | None = None
    here: int = 0
    #: What of these a crash leaves.
    record_on_disk: Record | None = None
    here_on_disk: int = 0
    #: The provider's effects, each by the key that it came with, or by the try that it came from.
    there: tuple[str, ...] = ()
    lock: int | None = None
    clients: tuple[Client, ...] = (Client(), Client())
    faults: int = FAULTS

    def committed(self, *, durable: bool = True, **changes: Any) -> World:
        """Return the state after a COMMIT.

        The log is sequential: one that is on disk takes all before it with it.
        """
        world = self._replace(**changes)
        if durable:
            return world._replace(record_on_disk=world.record, here_on_disk=world.here)
        return world

    def client(self, number: int, **changes: Any) -> World:
        clients = list(self.clients)
        changed = clients[number]._replace(**changes)
        if changed.phase == "idle":  # nothing else of an ended request matters
            changed = Client(tries=changed.tries, told=changed.told)
        clients[number] = changed
        return self._replace(clients=tuple(clients))


Step = tuple[str, World]


def ticket_of(number: int, tries: int, setting: Setting) -> Ticket:
    owner = UUID(int=1 + number * 10 + tries)
    return make_ticket(owner=owner, guarantee=setting.guarantee, lease=LEASE.total_seconds())


def steps(world: World, setting: Setting) -> Iterator[Step]:
    """Yield what can happen next, each as a sentence and the state after it."""
    for number, client in enumerate(world.clients):
        ticket = ticket_of(number, client.tries, setting)
        for said, after in _PHASES[client.phase](world, number, client, ticket, setting):
            yield f"client {number + 1}, request {max(1, client.tries)}: {said}", after
    yield from _faults(world, setting)


# ------------------------------------------------------------------------------- what a client does


def _idle(
    world: World, number: int, client: Client, ticket: Ticket, setting: Setting
) -> Iterator[Step]:
    if client.tries < TRIES[number]:
        fresh = Client(phase="sent", tries=client.tries + 1, told=client.told)
        yield "sends a request", world.client(number, **fresh._asdict())


def _sent(
    world: World, number: int, client: Client, ticket: Ticket, setting: Setting
) -> Iterator[Step]:
    """The claim: of a new key, or of a record that is read while its lease lives, or after that."""
    code = setting.code
    if world.record is None:
        made = code.claimed(ticket, None, NOW)
        durable = code.durable_claims or not setting.atomic
        after = world.committed(durable=durable, record=made)
        yield "claims the new key", _judged(after, number, made, ticket, setting)
        return
    for ended in (False, True):
        known = world.record._replace(read_at=NOW + LEASE if ended else NOW)
        when = "after the lease" if ended else "within the lease"
        if setting.atomic:
            yield from _claim_under_lock(world, number, known, ticket, setting, when)
        else:
            if code.takeable(known, ticket):
                known = code.claimed(ticket, known, NOW)
            after = world.committed(record=known._replace(read_at=NOW, taken=False))
            yield f"claims {when}", _judged(after, number, known, ticket, setting)


def _claim_under_lock(  # noqa: PLR0917 - whose turn it is, and when
    world: World, number: int, known: Record, ticket: Ticket, setting: Setting, when: str
) -> Iterator[Step]:
    verdict = setting.code.read(known, ticket)
    if not isinstance(verdict, Execute):
        yield f"claims {when}", _judged(world, number, known, ticket, setting)
    elif world.lock is None:
        settlement = setting.code.takeover(known, ticket, verdict, None)
        taken = setting.code.settled(ticket, known, settlement, NOW)
        after = world.committed(record=taken._replace(read_at=NOW))
        mine = taken._replace(read_at=NOW, taken=verdict.takeover)
        yield f"takes over {when}", _judged(after, number, mine, ticket, setting)


def _judged(world: World, number: int, record: Record, ticket: Ticket, setting: Setting) -> World:
    verdict = setting.code.read(record, ticket)
    if isinstance(verdict, Execute):
        phase = "claimed" if setting.atomic else "working"
        return world.client(number, phase=phase, seen=record, run=verdict)
    told = "replayed" if isinstance(verdict, Replay) else world.clients[number].told
    return world.client(number, phase="idle", told=told)


def _claimed(
    world: World, number: int, client: Client, ticket: Ticket, setting: Setting
) -> Iterator[Step]:
    """The lock. If the row is not as it was claimed, the key is claimed again."""
    if world.lock is not None:
        return
    record, seen = world.record, client.seen
    assert seen is not None
    if record is not None and (record.owner, record.status, record.attempt) == (
        seen.owner,
        seen.status,
        seen.attempt,
    ):
        yield "locks the row", world._replace(lock=number).client(number, phase="working")
    else:
        phase = "idle" if client.again else "sent"
        yield (
            "finds another row",
            world.client(number, phase=phase, seen=None, run=None, again=True),
        )


def _working(
    world: World, number: int, client: Client, ticket: Ticket, setting: Setting
) -> Iterator[Step]:
    run, seen = client.run, client.seen
    assert run is not None
    assert seen is not None
    yield from _ended(
        world, number, client, ticket, setting, WorkResult.DROPPED, "refuses, and has done nothing"
    )
    yield from _ended(world, number, client, ticket, setting, WorkResult.FAILED, "fails")
    if setting.there == "asks" and (run.attempt > 1 or run.takeover):
        yield (
            "leaves the provider alone, since it is not the first attempt",
            world.client(number, phase="acted"),
        )
        return
    name = (
        str(setting.code.operation_of(seen, run)) if setting.there == "key" else str(ticket.owner)
    )
    there = tuple(sorted({*world.there, name}))
    yield "acts at the provider", world._replace(there=there).client(number, phase="acted")


def _acted(
    world: World, number: int, client: Client, ticket: Ticket, setting: Setting
) -> Iterator[Step]:
    yield from _ended(world, number, client, ticket, setting, WorkResult.FAILED, "fails")
    if setting.atomic:
        yield "writes here", world.client(number, phase="wrote", wrote=True)
    else:
        yield (
            "writes here",
            world.committed(here=min(world.here + 1, 3)).client(number, phase="wrote"),
        )


def _wrote(
    world: World, number: int, client: Client, ticket: Ticket, setting: Setting
) -> Iterator[Step]:
    end = (world, number, client, ticket, setting)
    yield from _ended(*end, WorkResult.FAILED, "fails")
    yield from _ended(*end, WorkResult.KEPT, "responds 201")
    if setting.atomic:
        yield from _ended(
            *end, WorkResult.KEPT, "responds 201 after an error", rollback=Rollback.ERROR
        )
        yield from _ended(
            *end, WorkResult.KEPT, "responds 201 to a dry run", rollback=Rollback.ASKED
        )
    else:
        yield from _ended(*end, WorkResult.CUT, "is cancelled")


def _ended(  # noqa: PLR0917 - whose turn it is, and how it ends
    world: World,
    number: int,
    client: Client,
    ticket: Ticket,
    setting: Setting,
    ended: WorkResult,
    said: str,
    *,
    rollback: Rollback = Rollback.NONE,
) -> Iterator[Step]:
    """The end of the work: its settle, in its transaction or after that was rolled back."""
    code, run = setting.code, client.run
    assert run is not None
    conclusion = code.conclude(
        ended, rollback, setting.on_failure, succeeded=ended is WorkResult.KEPT
    )
    outcome = CREATED if ended is WorkResult.KEPT else None
    state = conclusion.state
    settlement = code.settlement(state, ticket, run, fence=client.seen, outcome=outcome, ttl=None)
    if setting.atomic and client.lost:  # what it wrote is gone, and it is told so at COMMIT
        failed = code.settlement(
            SettledState.BOUND, ticket, run, fence=client.seen, outcome=None, ttl=None
        )
        yield (
            f"{said}, and its transaction is gone",
            world.client(number, phase="apart", pending=failed, wrote=False),
        )
        return
    freed = world._replace(lock=None) if world.lock == number else world
    if settlement is None:
        yield said, freed.client(number, phase="idle", wrote=False)
    elif setting.atomic and not conclusion.commit:
        yield (
            f"{said}, and rolls back",
            freed.client(number, phase="apart", pending=settlement, wrote=False),
        )
    else:
        yield from _settled(world, freed, number, client, ticket, setting, settlement, said)


def _settled(  # noqa: PLR0917 - the same
    world: World,
    freed: World,
    number: int,
    client: Client,
    ticket: Ticket,
    setting: Setting,
    settlement: Settlement,
    said: str,
) -> Iterator[Step]:
    record = world.record
    if record is None or (setting.code.fenced and record.owner != settlement.fence):
        yield (
            f"{said}, and the record is another's",
            freed.client(number, phase="idle", wrote=False),
        )
        return
    completes = settlement.status is Status.COMPLETED
    new = setting.code.settled(ticket, record, settlement, NOW)
    told = "created" if completes else client.told
    if setting.atomic and not setting.code.one_commit:
        yield (
            f"{said}, and settles before its writes are committed",
            freed.committed(record=new).client(number, phase="uncommitted", told=told),
        )
        return
    here = min(freed.here + client.wrote, 3)
    after = freed.committed(record=new, here=here)
    yield f"{said}, settles and commits", after.client(number, phase="idle", wrote=False, told=told)
    if world.faults:
        broken = after._replace(faults=world.faults - 1)
        yield (
            f"{said}, commits, and is not told so",
            broken.client(number, phase="idle", wrote=False),
        )


def _uncommitted(
    world: World, number: int, client: Client, ticket: Ticket, setting: Setting
) -> Iterator[Step]:
    """Reached by a mutation only: the record was settled in a transaction of its own."""
    after = world.committed(here=world.here + client.wrote)
    yield "commits its writes", after.client(number, phase="idle", wrote=False)


def _apart(
    world: World, number: int, client: Client, ticket: Ticket, setting: Setting
) -> Iterator[Step]:
    """The settle of a call that was rolled back: under the row's lock again, if nobody else has
    settled it since.
    """
    if world.lock is not None:
        return
    record, seen, settlement = world.record, client.seen, client.pending
    assert seen is not None
    assert settlement is not None
    untouched = record is not None and (
        not setting.code.fenced or setting.code.untouched(record, seen, ticket, settlement)
    )
    if (
        record is None
        or not untouched
        or (setting.code.fenced and record.owner != settlement.fence)
    ):
        yield (
            "leaves the record, which has changed",
            world.client(number, phase="idle", pending=None),
        )
        return
    told = "created" if settlement.status is Status.COMPLETED else client.told
    after = world.committed(record=setting.code.settled(ticket, record, settlement, NOW))
    yield "settles after its rollback", after.client(number, phase="idle", pending=None, told=told)


_PHASES: dict[str, Callable[[World, int, Client, Ticket, Setting], Iterator[Step]]] = {
    "idle": _idle,
    "sent": _sent,
    "claimed": _claimed,
    "working": _working,
    "acted": _acted,
    "wrote": _wrote,
    "uncommitted": _uncommitted,
    "apart": _apart,
}

# ------------------------------------------------------------------------------------ what may fail


def _faults(world: World, setting: Setting) -> Iterator[Step]:
    if not world.faults:
        return
    world = world._replace(faults=world.faults - 1)
    for number, client in enumerate(world.clients):
        if client.phase == "idle":
            continue
        freed = world._replace(lock=None) if world.lock == number else world
        who = f"client {number + 1}, request {client.tries}"
        yield (
            f"{who}: its worker dies",
            freed.client(number, phase="idle", wrote=False, pending=None),
        )
        if world.lock == number:
            yield f"{who}: its connection breaks", freed.client(number, lost=True)
    yield "the server crashes, or its standby is promoted", _crashed(world)


def _crashed(world: World) -> World:
    """Leave what was on disk.

    Who was in a transaction finds out at its next statement, and may act elsewhere before.
    """
    after = world._replace(record=world.record_on_disk, here=world.here_on_disk, lock=None)
    for number in range(len(world.clients)):
        if world.lock == number:
            after = after.client(number, lost=True)
    return after
