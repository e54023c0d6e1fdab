"""What people type in our commands: numbers, spans of time, and the record that is meant."""

from __future__ import annotations

from argparse import ArgumentTypeError
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.management.base import CommandError

from .. import conf
from ..core.hashing import record_id, record_of_ref
from ..core.records import Record
from ..errors import RecordUnreadable
from ..inspection.beginnings import beginning, by_primary_key
from ..models import IdempotencyRecord
from ..runtime.registry import stores
from ..scopes import ANONYMOUS, spellings
from ..stores.base import BaseStore, innermost

#: The largest LIMIT that every database accepts.
MOST_ROWS = 2**63 - 1
#: A year, in seconds.
MOST_SECONDS = 365 * 86_400
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def add_record(parser: Any, **of_scope: Any) -> None:
    """Add what names one record, which `sought()` reads.

    `of_scope` is what else is said of the first argument.
    """
    parser.add_argument(
        "scope",
        help='Whose key it is, exactly, such as "user:auth.user:7"; or alone the operation_ref '
        "of a problem document, the "
        "key_hash of a log line, or a record's id.",
        **of_scope,
    )
    parser.add_argument(
        "key", nargs="?", help="The key, exactly, without the quotes of its header."
    )
    parser.add_argument(
        "--realm", metavar="NAME", help="The realm of the scope, if the scope does not name it."
    )


def add_store(parser: Any) -> None:
    parser.add_argument(
        "--store",
        metavar="ALIAS",
        help='Of IDEMPOTENCY["STORES"]. Without it, the one that IDEMPOTENCY["STORE"] names.',
    )


def positive(text: str) -> int:
    return int(_number(int, text, least=1, most=MOST_ROWS, words="a whole number of at least 1"))


def not_negative(text: str) -> float:
    return _number(float, text, least=0, most=MOST_SECONDS, words="a number of seconds, 0 or more")


def duration(text: str) -> float:
    """Read a span of time such as 90s, 5m, 2h or 1d. Returns seconds."""
    number, unit = (text[:-1], text[-1:]) if text[-1:] in _UNITS else (text, "s")
    try:
        return not_negative(number) * _UNITS[unit]
    except ArgumentTypeError as error:
        raise ArgumentTypeError(
            f"{text!r} is not a span of time, such as 90s, 5m, 2h or 1d."
        ) from error


def _number(kind: Any, text: str, *, least: int, most: int, words: str) -> float:
    try:
        value = kind(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        limit = f", and at most {most}" if value > most else ""
        raise ArgumentTypeError(f"{text!r} is not {words}{limit}.")
    return float(value) if kind is float else int(value)


# ----------------------------------------------------------------------------------------- a record


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought:
    """One record of a store, which may not exist."""

    #: The store's.
    alias: str
    #: With all its layers.
    store: BaseStore
    id: UUID
    #: As typed; "": by the operation_ref, the key_hash or the id.
    scope: str
    key: str

    def get(self) -> Record:
        """Return the record. Raises `CommandError`."""
        record = self.store.get(self.id)
        if record is None:
            raise self.unknown()
        return record

    def unknown(self) -> CommandError:
        """Return the error for a missing record, with the scopes that may have been meant."""
        store = innermost(self.store)
        alias = self.alias
        if store.in_process:
            return CommandError(
                f"The store {alias!r} is a {type(store).__name__}: its records are in the "
                "memory of the server process."
            )
        if not self.key:
            return CommandError(
                f"The store {alias!r} has no such record: it has expired and been deleted, "
                "or is in another store."
            )
        others = [other for other in conf.get("STORES") if other != alias]
        elsewhere = (
            f", or be in another store: type --store and one of {', '.join(others)}"
            if others
            else ""
        )
        user = settings.AUTH_USER_MODEL.lower()
        return CommandError(
            f"The store {alias!r} has no record of the scope {self.scope!r} and the key "
            f"{self.key!r}.\n"
            "Both must be exact, and the key is without the quotes of its header. A scope "
            "is one of\n"
            f"  user:<app.model>:<pk>  of a user, such as user:{user}:7\n"
            "  scope:<name>           where a policy's scope function returned that name, "
            "which may be stored as its hash\n"
            "  call:<name>            of a guarded function: its key_prefix, or its module "
            "and qualified name\n"
            f'  {ANONYMOUS:<21}  where a policy says anonymous="shared"\n'
            "with realm:<name>/ before it, or --realm <name>, where a realm is set, and "
            "with database:<alias>/ before the\n"
            "user: of a database other than the default one.\n"
            f"The record may also have expired and been deleted{elsewhere}."
        )


def sought(alias: str, scope: str, key: str | None, *, realm: str | None) -> Sought:
    """Return the record that is meant.

    A `scope` alone is an operation_ref, a key_hash or an id. Raises `CommandError`.
    """
    store = stores.outermost(stores[alias])
    ids = {_referred(store, scope): ""} if key is None else _spelled(scope, key, realm=realm)
    found = next((name for name in ids if len(ids) > 1 and _exists(store, name)), next(iter(ids)))
    return Sought(alias=alias, store=store, id=found, scope=ids[found], key=key or "")


def _exists(store: BaseStore, name: UUID) -> bool:
    try:
        return store.get(name) is not None
    except RecordUnreadable:
        return True


def _spelled(typed: str, key: str, *, realm: str | None) -> dict[UUID, str]:
    """Return the ids that a scope and a key may have, and the scope of each."""
    scopes = spellings(typed, realm=realm)
    try:
        return {record_id(scope, key): scope for scope in scopes}
    except UnicodeEncodeError as error:
        raise CommandError(
            f"The key {key!r} is not UTF-8, and no record has such a key."
        ) from error


def _referred(store: BaseStore, ref: str) -> UUID:
    """Return the id that is meant by an operation_ref, a key_hash or itself."""
    found = record_of_ref(conf.derive_secrets(), ref)
    if found is not None:
        return found
    with suppress(ValueError):
        return UUID(ref)
    digits = beginning(ref)
    if not digits:
        raise CommandError(
            f"{ref!r} is not an operation_ref that a secret of this project has signed. "
            "Type one, or a key_hash of the log, or "
            "a scope and a key."
        )
    ids = _begun(store, digits)
    if len(ids) > 1:
        raise CommandError(
            f"Several records have ids that begin with {ref}: {', '.join(map(str, ids))}. "
            "Type one of them."
        )
    if not ids:
        raise CommandError(
            f"No record has an id that begins with {ref}: it has expired and been deleted, "
            "or is in another store."
        )
    return ids[0]


def _begun(store: BaseStore, digits: str) -> list[UUID]:
    """Return the ids that begin so: by the primary key of a database where that can tell, else all
    records are read.
    """
    using = store.rows_in
    if using is not None:
        rows = by_primary_key(IdempotencyRecord.objects.using(using), digits)
        if rows is not None:
            return list(rows.values_list("pk", flat=True)[:3])
    batches = store.scan()
    return [
        record.id
        for batch in batches
        for record in batch.records
        if record.id.hex.startswith(digits)
    ]
