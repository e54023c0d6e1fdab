"""The hot path's SQL, built once per alias from the model's `_meta`, and the rows that it reads, as
records.

Compiling costs three times the round trip.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ...core import rules
from ...core.records import (
    GUARANTEES,
    MISSING,
    STATUSES,
    Guarantee,
    Outcome,
    Record,
    Settlement,
    Status,
    Ticket,
    UnprintedBytes,
    UnprintedText,
)
from ...errors import RecordUnreadable
from ...models import IdempotencyRecord, InstantField
from .dialects import dialect
from .dialects.transactions import Bound

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.backends.utils import CursorWrapper

FIELDS = tuple(IdempotencyRecord._meta.concrete_fields)
#: The columns of a row that a statement has read, in order.
NAMES = (*(field.name for field in FIELDS), "read_at", "location")
INSTANTS = frozenset(field.name for field in FIELDS if isinstance(field, InstantField))
#: The columns of a record without a response.
UNANSWERED = {
    "completed_at": None,
    "response_status": None,
    "response_headers": "",
    "response_body": None,
}


#: The value of a column that the database sets by its clock.
NOW = object()


def record(row: tuple[Any, ...], connection: BaseDatabaseWrapper) -> Record:
    """Read a row of `select` or `lock`.

    Raises `RecordUnreadable`, but not if only the response is unreadable.
    """
    return record_of(dict(zip(NAMES, row, strict=True)), connection)


def records(
    rows: Sequence[tuple[Any, ...]], connection: BaseDatabaseWrapper
) -> tuple[list[Record], int]:
    """Read the rows of `scan`, and count those that cannot be read."""
    found: list[Record] = []
    for row in rows:
        with suppress(RecordUnreadable):
            found.append(record(row, connection))
    return found, len(rows) - len(found)


def position(row: tuple[Any, ...], connection: BaseDatabaseWrapper) -> tuple[Any, UUID]:
    """Return where the next `scan` begins."""
    values = dict(zip(NAMES, row, strict=True))
    field = IdempotencyRecord._meta.get_field("purge_at")
    return field.get_db_prep_value(instant(values["purge_at"], connection), connection), uuid_of(
        values["id"]
    )


def record_of(value: Mapping[str, Any], connection: BaseDatabaseWrapper) -> Record:
    """Return a row, given by its column names, as a record; without a response if those columns are
    not given.

    Raises `RecordUnreadable` for a row of a later version or of other software. If only its
    response cannot be read, the record has none.
    """
    try:
        status = STATUSES[value["status"]]
        outcome = None
        if value.get("response_headers") and (
            status is Status.COMPLETED or value["response_status"] is not None
        ):
            outcome = outcome_of(
                value["response_status"], value["response_headers"], value["response_body"]
            )
        record_id, owner, operation = [
            each if isinstance(each, UUID) else UUID(each)
            for each in (value["id"], value["owner"], value["operation"])
        ]
        times = [
            value[name]
            for name in ("lease_until", "created_at", "expires_at", "purge_at", "read_at")
        ]
        completed = [] if value["completed_at"] is None else [value["completed_at"]]
        lease_until, created_at, expires_at, purge_at, read_at, *completed = instants(
            times + completed, connection
        )
        return Record(
            id=record_id,
            scope=value["scope"],
            key=value["key"],
            method=value["method"],
            path=value["path"],
            guarantee=GUARANTEES[value["guarantee"]],
            digest=bytes(value["digest"]),
            status=status,
            owner=owner,
            attempt=value["attempt"],
            lease_until=lease_until,
            created_at=created_at,
            completed_at=completed[0] if completed else None,
            expires_at=expires_at,
            purge_at=purge_at,
            read_at=read_at,
            operation=operation,
            secret_id=value["secret_id"],
            request_id=value["request_id"],
            outcome=outcome,
            location=value["location"],
        )
    except (LookupError, TypeError, ValueError) as error:
        raise RecordUnreadable from error


def outcome_of(status: Any, headers: Any, body: Any) -> Outcome | None:
    """Return the response of a row, or `None` if it cannot be read."""
    try:
        read = tuple([(str(name), str(text)) for name, text in json.loads(headers)])
        return Outcome(
            status=int(status), headers=read, body=MISSING if body is None else bytes(body)
        )
    except (TypeError, ValueError, RecursionError):
        return None


def unformatted(name: str) -> str:
    """Return a name that a database has given as part of a statement, in which the driver replaces
    `%s`.
    """
    return name.replace("%", "%%")


def uuid_of(value: UUID | str) -> UUID:
    """Return an id as the driver has read it."""
    return value if isinstance(value, UUID) else UUID(value)


def instants(values: Iterable[datetime | str], connection: BaseDatabaseWrapper) -> list[datetime]:
    """Return a driver's values of `InstantField`s, or of the database's clock, as aware UTC
    datetimes.
    """
    # A naive value is UTC: on PostgreSQL we select no instant in a session's time zone, see
    # Dialect.instant().
    naive = not connection.features.supports_timezones
    # SQLite's clock.
    read = [datetime.fromisoformat(value) if isinstance(value, str) else value for value in values]
    return [
        value.replace(tzinfo=timezone.utc)
        if naive or value.tzinfo is None
        else value.astimezone(timezone.utc)
        for value in read
    ]


def instant(value: datetime | str, connection: BaseDatabaseWrapper) -> datetime:
    """See instants()."""
    return instants([value], connection)[0]


def new_life(ticket: Ticket, operation: UUID) -> dict[str, Any]:
    """Return the columns of a new life, which keeps nothing of the expired operation."""
    return {
        "created_at": NOW,
        "scope": ticket.scope,
        "key": ticket.key,
        "method": ticket.method,
        "path": ticket.path,
        "guarantee": ticket.guarantee.value,
        "secret_id": ticket.secret_id,
        "operation": operation.hex,
    }


class Statements:
    """Every statement on the records of one database.

    UUIDs are bound as 32 hex digits, which each database understands, whether its column is a UUID
    or text. A ticket says in which table it has made its claim; before the claim, that is the one
    which the connection finds.
    """

    #: Reads a row of any other statement.
    record = staticmethod(record)

    def __init__(
        self, connection: BaseDatabaseWrapper, *, combine: bool, durable_claims: bool = True
    ) -> None:
        """`combine`: may several statements go in one message?

        `durable_claims`: are claims of `atomic` on disk before the work runs, too?
        """
        self.dialect = dialect(connection)
        self._durable_claims = durable_claims
        #: Does something precede a statement that is a transaction of its own?
        self._bounds = combine and bool(self.dialect.bounded)
        # Names, not the function: it belongs to the connection of the first thread.
        quoted = {
            str(field.column): connection.ops.quote_name(str(field.column)) for field in FIELDS
        }
        self._quote = quote = quoted.__getitem__
        self.table = IdempotencyRecord._meta.db_table
        self._table = connection.ops.quote_name(self.table)
        self._columns = ", ".join(quoted.values())
        # lru_cache on the instance: a few variants of each; of an UPDATE, a few per table
        self._insert = lru_cache(maxsize=None)(self._build_insert)
        self._delay = lru_cache(maxsize=64)(self.dialect.delay)
        self._update = lru_cache(maxsize=1024)(self._build_update)
        self._types = {field.name: field.db_type(connection) or "" for field in FIELDS}
        self._where_id = f"WHERE {quote('id')} = %s"
        self._now = f"{self.dialect.instant(self.dialect.clock)}, {self.dialect.location}"
        instants = {
            str(f.column): self.dialect.instant(quote(str(f.column)))
            for f in FIELDS
            if f.name in INSTANTS
        }
        self._seen = f"{', '.join((quoted | instants).values())}, {self._now}"
        bodiless = quoted | instants | {"response_body": "NULL"}
        self._seen_without_body = f"{', '.join(bodiless.values())}, {self._now}"
        #: Reads the row of an id.
        self.reading = (
            f"{self.dialect.select_verb} {self._seen} FROM {self._table} {self._where_id}"
        )
        #: What of our own row may have changed since its claim.
        self._brief = ", ".join([quote("owner"), quote("status"), quote("attempt")])
        self._locks = connection.features.has_select_for_update
        #: Does lock() read the row, too? If not, read() must follow.
        self.lock_reads = self._locks or self.dialect.returns
        self._lock = lru_cache(maxsize=256)(self._build_lock)

    def _at(self, location: str | None) -> str:
        """Return the table of a record as part of a statement; `None`: the one that the connection
        finds.
        """
        return self._table if location is None else unformatted(location)

    # -------------------------------------------------------------------------------------- running

    def fetched(self, connection: BaseDatabaseWrapper, bound: Bound) -> tuple[Any, ...] | None:
        """Return the first row of a statement."""
        with connection.cursor() as cursor:
            if self._bounds:
                self._execute_bounded(connection, cursor, bound)
            else:
                cursor.execute(*bound)
            row: tuple[Any, ...] | None = cursor.fetchone()
        return row

    def written(self, connection: BaseDatabaseWrapper, bound: Bound) -> int:
        """Return how many rows a statement has written."""
        with connection.cursor() as cursor:
            if self._bounds:
                self._execute_bounded(connection, cursor, bound)
            else:
                cursor.execute(*bound)
            return int(cursor.rowcount)

    def written_soon(self, connection: BaseDatabaseWrapper, bound: Bound) -> int:
        """Return how many rows a statement has written that does not wait for another's row."""
        with self.dialect.bounding(connection):
            return self.written(connection, bound)

    def _execute_bounded(
        self, connection: BaseDatabaseWrapper, cursor: CursorWrapper, bound: Bound
    ) -> None:
        """Execute a statement, which does not wait for the table without end if it is a transaction
        of its own.
        """
        sql, params = bound
        if not self._bounds or connection.in_atomic_block or not self.dialect.combines(connection):
            cursor.execute(sql, params)
            return
        cursor.execute(f"{self.dialect.bounded}{sql}", params)
        while cursor.nextset():  # to its own result
            pass

    # -------------------------------------------------------------------------------------- reading

    def select(self, record_id: UUID, *, joined: bool = False) -> Bound:
        tail = self.dialect.joined_read if joined else ""
        return f"{self.reading}{tail}", [record_id.hex]

    def probe(self, record_id: UUID) -> Bound:
        """Look for a row, to which a lock clause may be added."""
        return f"{self.dialect.select_verb} 1 FROM {self._table} {self._where_id}", [record_id.hex]

    def lock(self, ticket: Ticket, *, takeover: bool, brief: bool) -> Bound:
        """Lock a row and read it, followed by the transaction's id if the database has one.

        `brief`: only its owner, status and attempt.
        """
        return self._lock(ticket.location, takeover, brief), [ticket.id.hex]

    def _build_lock(self, location: str | None, takeover: bool, brief: bool) -> str:
        table = self._at(location)
        seen = self._brief if brief else self._seen
        if not self._locks:  # takes SQLite's write lock before any read makes a snapshot
            touch = f"{self._quote('attempt')} = {self._quote('attempt')}"
            returning = f" RETURNING {seen}" if self.lock_reads else ""
            return f"UPDATE {table} SET {touch} {self._where_id}{returning}"
        tail = (not takeover and self.dialect.lock_own) or self.dialect.lock
        transaction_id = (
            self.dialect.take_transaction_id and f", {self.dialect.take_transaction_id}"
        )
        return (
            f"{self.dialect.select_verb} {seen}{transaction_id} FROM {table} "
            f"{self._where_id} {tail}"
        )

    def read(self, ticket: Ticket, *, brief: bool) -> Bound:
        """Read the row that lock() has locked."""
        return (
            f"SELECT {self._brief if brief else self._seen} FROM {self._table} {self._where_id}",
            [ticket.id.hex],
        )

    def wait(self, ticket: Ticket, seconds: float) -> Bound | None:
        """Wait until the row's lock is free, and share it for an instant.

        `None`: not here, or not so briefly.
        """
        shape = self.dialect.waiting(seconds)
        if shape is None:
            return None
        head, source, tail = shape
        table = self._at(ticket.location)
        return f"{head}SELECT 1 FROM {table}{source} {self._where_id} {tail}", [ticket.id.hex]

    def scan(self, after: tuple[Any, UUID] | None, size: int, *, bodies: bool) -> Bound:
        """Read `size` rows from a position on, in the order of the one index.

        It is bounded by that, not by the table.
        """
        deadline = self._quote("purge_at")
        key = self._quote("id")
        seen = self._seen if bodies else self._seen_without_body
        where = ""
        values = list[Any]()
        if after is not None:
            where = f"WHERE {deadline} >= %s AND ({deadline} > %s OR {key} > %s) "
            values = [after[0], after[0], after[1].hex]
        return f"SELECT {seen} FROM {self._table} {where}ORDER BY {deadline}, {key} LIMIT %s", [
            *values,
            size,
        ]

    # -------------------------------------------------------------------------------------- writing

    def insert(self, ticket: Ticket, operation: UUID, *, joined: bool) -> Bound:
        lease = self._delay(ticket.lease)
        ttl = self._delay(ticket.ttl)
        return self._insert(joined, ticket.guarantee), [
            *(ticket.id.hex, ticket.scope, ticket.key, ticket.method, ticket.path),
            *(ticket.digest, ticket.owner.hex, operation.hex),
            *(lease, ttl, ttl, ticket.secret_id, ticket.request_id),
            *[ticket.id.hex] * self.dialect.insert_asks,
        ]

    def _build_insert(self, joined: bool, guarantee: Guarantee) -> str:
        given = {
            "guarantee": f"'{guarantee}'",
            "status": f"{Status.RUNNING.value}",
            "attempt": "1",
            "lease_until": self.dialect.later,
            "created_at": self.dialect.clock,
            "completed_at": "NULL",
            "expires_at": self.dialect.later,
            "purge_at": self.dialect.later,
            "response_status": "NULL",
            "response_headers": "''",
            "response_body": "NULL",
        }
        values = ", ".join(
            given.get(field.name) or self.dialect.placeholder(self._types[field.name])
            for field in FIELDS
        )
        durable = self._durable_claims or guarantee is not Guarantee.ATOMIC
        sql = self.dialect.insert(
            self._table, self._columns, values, joined=joined, durable=durable
        )
        return f"{sql} RETURNING {self._now}" if self.dialect.returns else sql

    def born(
        self, ticket: Ticket, operation: UUID, row: tuple[Any, ...], connection: BaseDatabaseWrapper
    ) -> Record:
        """Read what `insert` returns, if it returns anything: when the row was made, and in which
        table.
        """
        now, location = row
        return rules.born(ticket, instants([now], connection)[0], operation, location)

    def inserted_or_read(
        self, connection: BaseDatabaseWrapper, insert: Bound, ticket: Ticket, operation: UUID
    ) -> Record | None:
        """Insert the record and, in the same trip, read the one that is there."""
        inserting, new = insert
        with connection.cursor() as cursor:
            cursor.execute(
                f"{self.dialect.bounded}{inserting}; {self.reading}", [*new, ticket.id.hex]
            )
            # What bounds the wait returns nothing.
            while cursor.description is None and cursor.nextset():
                pass
            row: tuple[Any, ...] | None = cursor.fetchone()
            while row is None and cursor.nextset():
                row = cursor.fetchone()
        if row is None:
            return None
        # A wrapper of the project may have moved the cursor to the last result, which has the new
        # row, too.
        if len(row) == len(NAMES):
            return self.record(row, connection)
        return self.born(ticket, operation, row, connection)

    def take(self, ticket: Ticket, seen: Record, run: rules.Execute, *, joined: bool) -> Bound:
        """Make the ticket the owner of a takeable record, unless another owner was faster."""
        delay = self.dialect.delay
        changes = {
            "status": Status.RUNNING.value,
            "owner": ticket.owner.hex,
            "attempt": run.attempt,
            "digest": ticket.digest,
            "request_id": ticket.request_id,
            "lease_until": delay(ticket.lease),
            "expires_at": delay(ticket.ttl),
            "purge_at": delay(ticket.ttl),
        }
        if run.new_life or seen.outcome is not None:
            changes |= UNANSWERED
        if run.new_life:
            changes |= new_life(ticket, rules.operation_of(seen, run))
        return self._bind(ticket, changes, seen.owner, seen=seen, alone=not joined)

    def settle(self, ticket: Ticket, settlement: Settlement) -> Bound:
        changes: dict[str, Any] = {
            "status": settlement.status.value,
            "owner": ticket.owner.hex,
            "attempt": settlement.attempt,
            "digest": settlement.digest,
            "request_id": ticket.request_id,
            **UNANSWERED,
        }
        outcome = settlement.outcome
        if outcome is not None:
            if settlement.status is Status.COMPLETED:  # a failed attempt is never completed
                changes["completed_at"] = NOW
            changes["response_status"] = outcome.status
            changes["response_headers"] = UnprintedText(json.dumps(outcome.headers))
            if outcome.body is not MISSING:
                changes["response_body"] = UnprintedBytes(outcome.body)
        if settlement.expires_in is not None:
            delay = self.dialect.delay(settlement.expires_in)
            changes |= {"expires_at": delay, "purge_at": delay}
        if settlement.lease_in is not None:
            changes["lease_until"] = self.dialect.delay(settlement.lease_in)
        if settlement.new_life:
            changes |= new_life(ticket, settlement.operation)
        return self._bind(
            ticket,
            changes,
            settlement.fence,
            location=ticket.location,
            transaction_id=settlement.transaction_id,
        )

    def renew(self, tickets: Sequence[Ticket]) -> Bound:
        """Restart the leases of running records, each with its own length.

        All records are in one table.
        """
        lease = self._quote("lease_until")
        cases = " ".join([f"WHEN %s THEN {self.dialect.later}"] * len(tickets))
        table = self._at(tickets[0].location)
        where, owned = self._owned(tickets)
        # By owner: one call may contain a key's old and new owner, with leases of different
        # lengths.
        values = [
            value
            for ticket in tickets
            for value in (ticket.owner.hex, self.dialect.delay(ticket.lease))
        ]
        set_lease = (
            f"SET {lease} = CASE {self._quote('owner')} {cases} ELSE {lease} "
            f"END{self.dialect.update_tail}"
        )
        return f"{self.dialect.update_verb} {table} {set_lease} {where}", [*values, *owned]

    def owners(self, connection: BaseDatabaseWrapper, tickets: Sequence[Ticket]) -> set[UUID]:
        """Return the tokens of those tickets that own running records."""
        where, owned = self._owned(tickets)
        seen = f"{self._quote('owner')} FROM {self._at(tickets[0].location)}"
        with connection.cursor() as cursor:
            self._execute_bounded(
                connection, cursor, (f"{self.dialect.select_verb} {seen} {where}", owned)
            )
            return {uuid_of(owner) for (owner,) in cursor.fetchall()}

    def _owned(self, tickets: Sequence[Ticket]) -> tuple[str, list[Any]]:
        quote = self._quote
        marks = ", ".join(["%s"] * len(tickets))
        where = (
            f"WHERE {quote('id')} IN ({marks}) AND {quote('owner')} IN ({marks}) AND "
            f"{quote('status')} = %s"
        )
        ids = [ticket.id.hex for ticket in tickets]
        owners = [ticket.owner.hex for ticket in tickets]
        return where, [*ids, *owners, Status.RUNNING.value]

    def _bind(
        self,
        ticket: Ticket,
        changes: Mapping[str, Any],
        owner: UUID,
        *,
        seen: Record | None = None,
        location: str | None = None,
        alone: bool = False,
        transaction_id: str | None = None,
    ) -> Bound:
        """Change columns of a record that still has this owner, and is still as it was `seen`.

        `alone`: in a transaction of its own. `transaction_id`: in no other transaction.
        """
        expected: list[Any] = [owner.hex]
        if seen is not None:
            expected += [seen.status.value, seen.attempt]
        if transaction_id is not None:
            expected.append(transaction_id)
        sql = self._update(
            location,
            tuple(changes),
            seen is not None,
            changes.get("completed_at") is NOW,
            alone,
            transaction_id is not None,
        )
        given = [value for value in changes.values() if value is not NOW]
        return sql, [*given, ticket.id.hex, *expected]

    def _build_update(  # noqa: PLR0917 - the keys of a cache
        self,
        location: str | None,
        columns: tuple[str, ...],
        compare: bool,
        completes: bool,
        alone: bool,
        identified: bool,
    ) -> str:
        table = self._at(location)
        given = {"created_at": self.dialect.clock}
        if completes:  # a retried settle keeps the time that the first one wrote
            done = self._quote("completed_at")
            now = self.dialect.clock
            given["completed_at"] = now if "created_at" in columns else f"COALESCE({done}, {now})"
        given |= dict.fromkeys(("lease_until", "expires_at"), self.dialect.later)
        given["purge_at"] = (
            f"{self.dialect.latest}({self._quote('purge_at')}, {self.dialect.later})"
        )
        assignments = ", ".join(
            f"{self._quote(column)} = {given.get(column, '%s')}" for column in columns
        )
        fenced = ("owner", "status", "attempt") if compare else ("owner",)
        fence = " AND ".join(f"{self._quote(column)} = %s" for column in fenced)
        if compare:  # and its owner has not renewed the lease since it was read
            running = f"{self._quote('status')} = {Status.RUNNING.value}"
            fence += f" AND NOT ({running} AND {self._quote('lease_until')} > {self.dialect.clock})"
        if identified:
            fence += f" AND {self.dialect.transaction_id} = %s"
        tail = self.dialect.update_tail if alone else ""
        return (
            f"{self.dialect.update_verb} {table} SET {assignments}{tail} "
            f"{self._where_id} AND {fence}"
        )
