"""The record that somebody names in a command: by scope and key, or by the operation_ref of a problem document."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from django.conf import settings
from django.core.management.base import CommandError

from .. import conf
from ..core.hashing import record_id, record_of_ref
from ..core.records import Record
from ..core.scope_names import spellings
from ..errors import RecordUnreadable
from ..http.keys import ANONYMOUS
from ..runtime.registry import stores
from ..stores.base import BaseStore
from ..stores.wrapper import innermost


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought:
    """One record of a store, which may not exist."""

    #: The store's.
    alias: str
    #: With all its layers.
    store: BaseStore
    id: UUID
    #: As typed; "": by the operation_ref.
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
        store, alias = innermost(self.store), self.alias
        if store.in_process:
            return CommandError(
                f"The store {alias!r} is a {type(store).__name__}: its records are in the memory of the server process."
            )
        if not self.key:
            return CommandError(
                f"The store {alias!r} has no record of this operation_ref: it has expired and been deleted, or is in another "
                "store."
            )
        others = [other for other in conf.get("STORES") if other != alias]
        elsewhere = f", or be in another store: type --store and one of {', '.join(others)}" if others else ""
        user = settings.AUTH_USER_MODEL.lower()
        return CommandError(
            f"The store {alias!r} has no record of the scope {self.scope!r} and the key {self.key!r}.\n"
            "Both must be exact, and the key is without the quotes of its header. A scope is one of\n"
            f"  user:<app.model>:<pk>  of a user, such as user:{user}:7\n"
            "  scope:<name>           where a policy's scope function returned that name, which may be stored as its hash\n"
            "  call:<name>            of a guarded function: its key_prefix, or its module and qualified name\n"
            f'  {ANONYMOUS:<21}  where a policy says anonymous="shared"\n'
            "with realm:<name>/ before it, or --realm <name>, where a realm is set, and with database:<alias>/ before the\n"
            "user: of a database other than the default one.\n"
            f"The record may also have expired and been deleted{elsewhere}."
        )


def sought(alias: str, scope: str, key: str | None, *, realm: str | None) -> Sought:
    """Return the record that is meant. A `scope` alone is an operation_ref. Raises `CommandError`."""
    ids = {_referred(scope): ""} if key is None else _spelled(scope, key, realm=realm)
    store = stores.outermost(stores[alias])
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
        raise CommandError(f"The key {key!r} is not UTF-8, and no record has such a key.") from error


def _referred(ref: str) -> UUID:
    """Return the id that an operation_ref names."""
    found = record_of_ref(conf.derive_secrets(), ref)
    if found is None:
        raise CommandError(
            f"{ref!r} is not an operation_ref that a secret of this project has signed. Type one, or a scope and a key."
        )
    return found
