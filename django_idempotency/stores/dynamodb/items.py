"""A record as a DynamoDB item: one attribute per field, under names that a project may choose.

No I/O.

    key         id, or a fixed partition value and the id          S
    identity    scope, key, digest (B), operation, guarantee, secret_id, method, path
    now         status, owner, attempt (N)                         what every condition compares
    owner       request_id                                         empty if the request had none
    deadlines   lease_until, created_at, completed_at, expires_at  N, microseconds since 1970, exact
    response    outcome                                            B, stores/key_value/packing.py; absent if there is none
    ttl         seconds since 1970                                 N, `purge_at`; DynamoDB deletes the item days later

A field that is `None` is absent. Every name is aliased in expressions: a third of them are reserved
words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any
from uuid import UUID

from ...core import rules
from ...core.records import MISSING, Guarantee, Outcome, Record, Status, Ticket
from ..key_value import packing

#: An item as the low-level client takes and returns it: {"name": {"S": "text"}}.
Item = dict[str, dict[str, Any]]

#: The most that we write into one item (bytes). DynamoDB accepts 409,600, including the names of
#: the attributes. The difference is room for what an earlier attempt has left in the item, such as
#: a longer path.
ITEM_LIMIT = 400_000
#: The longest compressed response that is stored (bytes).
OUTCOME_LIMIT = 350 * 1024


@dataclass(frozen=True, slots=True)
class _Kind:
    type: str
    pack: Callable[[Any], Any]
    unpack: Callable[[Any], Any]


_TEXT = _Kind("S", str, str)
_BYTES = _Kind("B", bytes, bytes)
_NUMBER = _Kind("N", str, int)
_INSTANT = _Kind(
    "N",
    lambda value: str(int(packing.microseconds(value))),
    lambda text: packing.instant(int(text)),
)

#: Field of a record → how an item holds it.
FIELDS = {
    "scope": _TEXT,
    "key": _TEXT,
    "digest": _BYTES,
    "status": _Kind("S", lambda status: status.name.lower(), lambda text: Status[text.upper()]),
    "owner": _Kind("S", lambda owner: owner.hex, UUID),
    "operation": _Kind("S", lambda operation: operation.hex, UUID),
    "attempt": _NUMBER,
    "guarantee": _Kind("S", str, Guarantee),
    "lease_until": _INSTANT,
    "created_at": _INSTANT,
    "completed_at": _INSTANT,
    "expires_at": _INSTANT,
    "secret_id": _TEXT,
    "method": _TEXT,
    "path": _TEXT,
    "request_id": _TEXT,
    "outcome": _Kind("B", bytes, packing.unpack_outcome),  # packed by fitting(), once
}
_ALL = {**FIELDS, "ttl": _NUMBER}
_OPTIONAL = ("completed_at", "outcome")


@dataclass(kw_only=True, eq=False, repr=False)
class Schema:
    """The attribute names of a table. Raises `ValueError` for invalid ones."""

    table: str
    #: The partition key.
    key_attr: str
    sort_key_attr: str | None
    static_pk_value: str | None
    attributes: Mapping[str, str]

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.attributes) - set(_ALL)):
            raise ValueError(f'"attributes" has {unknown[0]!r}; it may rename {", ".join(_ALL)}.')
        if self.static_pk_value is not None and not self.sort_key_attr:
            raise ValueError('"static_pk_value" needs "sort_key_attr", which then holds the id.')
        self.static = self.static_pk_value or "idempotency"
        given = self.attributes
        keys = (self.key_attr, self.sort_key_attr)
        chosen = {*keys, *given.values()}
        #: Field → its attribute. A name of ours that the project has chosen for another attribute
        #: yields.
        self.names = {
            name: given.get(name, f"idempotency_{name}" if name in chosen else name)
            for name in _ALL
        }
        taken = [name for name in (*keys, *self.names.values()) if name]
        if twice := sorted({name for name in taken if taken.count(name) > 1}):
            raise ValueError(f"two attributes are called {twice[0]!r}.")

    # -------------------------------------------------------------------------------------- records

    @property
    def location(self) -> tuple[str, str | None]:
        """Where in DynamoDB the items are."""
        return self.table, self.static if self.sort_key_attr else None

    def key(self, record_id: UUID) -> Item:
        if self.sort_key_attr is None:
            return {self.key_attr: {"S": record_id.hex}}
        return {self.key_attr: {"S": self.static}, self.sort_key_attr: {"S": record_id.hex}}

    def id_of(self, item: Item) -> UUID:
        """Return the id of an item. Raises `packing.Malformed` for an item that is not ours."""
        try:
            return UUID(hex=item[self.sort_key_attr or self.key_attr]["S"])
        except (KeyError, TypeError, ValueError) as error:
            raise packing.Malformed("its key is not an id") from error

    def scan(self, size: int) -> tuple[str, dict[str, Any]]:
        """Return the operation that reads all items, and its arguments."""
        arguments: dict[str, Any] = {"TableName": self.table, "Limit": size, "ConsistentRead": True}
        if self.sort_key_attr is None:
            return "scan", arguments
        return "query", arguments | {
            "KeyConditionExpression": "#partition = :partition",
            "ExpressionAttributeNames": {"#partition": self.key_attr},
            "ExpressionAttributeValues": {":partition": {"S": self.static}},
        }

    def born(self, record: Record) -> Item:
        """Return the item of a record without a response."""
        values = {name: getattr(record, name) for name in FIELDS}
        values["ttl"] = deleted_at(rules.keep_until(record))
        packed = {
            self.names[name]: self._packed(name, value)
            for name, value in values.items()
            if value is not None
        }
        return {**self.key(record.id), **packed}

    def record(self, item: Item, record_id: UUID, read_at: datetime) -> Record:
        """Return the record of an item. Raises `packing.Malformed` for an item that is not ours."""
        try:
            fields = {
                name: kind.unpack(item[self.names[name]][kind.type])
                for name, kind in FIELDS.items()
                if name != "outcome" and (name not in _OPTIONAL or self.names[name] in item)
            }
            fields = {
                "completed_at": None,
                "purge_at": self._purge_at(item) or fields["expires_at"],
                **fields,
            }
            return Record(id=record_id, read_at=read_at, outcome=self._outcome(item), **fields)
        except packing.Malformed:
            raise
        except Exception as error:  # other software may write anything into the table
            raise packing.Malformed(f"{type(error).__name__}: {error}") from error

    def _purge_at(self, item: Item) -> datetime | None:
        """Return when DynamoDB may delete an item; `None`: the attribute was removed, or is not a
        time.

        It still replays.
        """
        try:
            return datetime.fromtimestamp(float(item[self.names["ttl"]]["N"]), timezone.utc)
        except (KeyError, ValueError, OverflowError, OSError):
            return None

    def _outcome(self, item: Item) -> Outcome | None:
        """Return an item's response; `None` if there is none, or it cannot be read."""
        try:
            kind = FIELDS["outcome"]
            name = self.names["outcome"]
            answer: Outcome | None = kind.unpack(item[name][kind.type])
        except Exception:  # noqa: BLE001 - as above
            return None
        return answer

    def fitting(self, ticket: Ticket, outcome: Outcome | None) -> bytes | None:
        """Pack an outcome, without its body if the item would be too large with it."""
        if outcome is None:
            return None
        packed = packing.pack_outcome(outcome)
        size = len(packed)
        if (
            size > OUTCOME_LIMIT
            or size + _size(self.born(rules.born(ticket, ticket.now))) > ITEM_LIMIT
        ):
            return packing.pack_outcome(outcome._replace(body=MISSING))
        return packed

    # ------------------------------------------------------------------------------------ arguments

    def insert(self, record: Record) -> dict[str, Any]:
        """Return the arguments of a put. If the item exists, the put fails and returns it."""
        return {
            "TableName": self.table,
            "Item": self.born(record),
            "ConditionExpression": "attribute_not_exists(#key)",
            "ExpressionAttributeNames": {"#key": self.key_attr},
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }

    def change(
        self,
        record_id: UUID,
        values: Mapping[str, Any],
        *,
        seen: Mapping[str, Any],
        once: tuple[str, ...] = (),
        deleted: tuple[str, int] | None = None,
    ) -> dict[str, Any]:
        """Return the arguments of an update that fails unless the item still holds what was `seen`.

        A value of `None` removes its attribute. What is named in `once` is set only where it is
        absent. `deleted`, such as `("<", 1893553445)`, also compares when DynamoDB may delete the
        item. One without that attribute counts as early.
        """
        names = {
            f"#{name}": self.names[name] for name in (*values, *seen, *(["ttl"] if deleted else []))
        }
        bound = {
            f":{name}": self._packed(name, value)
            for name, value in values.items()
            if value is not None
        }
        bound |= {f":seen_{name}": self._packed(name, value) for name, value in seen.items()}
        sets = ", ".join(
            f"#{name} = if_not_exists(#{name}, :{name})" if name in once else f"#{name} = :{name}"
            for name, value in values.items()
            if value is not None
        )
        removes = ", ".join(f"#{name}" for name, value in values.items() if value is None)
        conditions = [f"#{name} = :seen_{name}" for name in seen]
        if deleted:
            compared = f"#ttl {deleted[0]} :deleted_at"
            early = deleted[0].startswith("<")
            conditions.append(f"(attribute_not_exists(#ttl) OR {compared})" if early else compared)
            bound[":deleted_at"] = self._packed("ttl", deleted[1])
        return {
            "TableName": self.table,
            "Key": self.key(record_id),
            "UpdateExpression": f"SET {sets}" + (f" REMOVE {removes}" if removes else ""),
            "ConditionExpression": " AND ".join(conditions),
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": bound,
        }

    def _packed(self, name: str, value: Any) -> dict[str, Any]:
        kind = _ALL[name]
        return {kind.type: kind.pack(value)}


def deleted_at(*deadlines: datetime) -> int:
    """Return the Unix time (seconds) from which DynamoDB may delete an item: never before the last
    deadline.
    """
    return math.ceil(max(deadlines).astimezone(timezone.utc).timestamp())


def _size(item: Item) -> int:
    """Return the size of an item as DynamoDB counts it, or a little more (bytes)."""
    return sum(
        len(name.encode()) + len(value.encode() if isinstance(value, str) else value)
        for name, typed in item.items()
        for value in typed.values()
    )
