"""Show one record of any store, as the admin does; and release, expire or erase it."""

from __future__ import annotations

import logging
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from ... import conf
from ...core import rules
from ...core.at_rest import HASHED
from ...core.hashing import operation_ref, record_id, record_of_ref
from ...core.interventions import Intervention
from ...core.records import Record, shortened
from ...core.scope_names import spellings
from ...engine.durable import Execution, release_suspended
from ...errors import (
    IdempotencyError,
    LostRace,
    OperationUnknown,
    OutcomeUnknown,
    RecordUnreadable,
    SecretUnknown,
    StoreUnavailable,
)
from ...http.keys import ANONYMOUS
from ...inspection import redaction
from ...inspection.failures import MISCONFIGURED, advice, reason
from ...inspection.interventions import VERBS, Verb
from ...inspection.status import display_status, next_answer
from ...inspection.terminal import lines, plain, span
from ...instrumentation.trail import trail
from ...runtime.derivation import derived_by
from ...runtime.registry import stores
from ...stores.base import Audit, BaseStore
from ...stores.wrapper import innermost, layers
from ..history import as_json, reference_line, referring, timeline
from ..history import lines as history_lines
from ..operators import operator

logger = logging.getLogger("django_idempotency")


class Command(BaseCommand):
    help = (
        "Show the record of one idempotency key, and what a request with it would get now. --release, --expire and "
        "--erase change it, unless a request holds the record. If one does, or there is no record, the exit status is 1."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "scope",
            nargs="?",
            help='Whose key it is, exactly, such as "user:auth.user:7"; or alone the operation_ref of a problem document.',
        )
        parser.add_argument("key", nargs="?", help="The key, exactly, without the quotes of its header.")
        parser.add_argument("--realm", metavar="NAME", help="The realm of the scope, if the scope does not name it.")
        parser.add_argument("--store", metavar="ALIAS", help='In IDEMPOTENCY["STORES"]; that of IDEMPOTENCY["STORE"].')
        parser.add_argument(
            "--reference", metavar="KIND:VALUE", help='List the keys that refer to it, such as "payment:17".'
        )
        parser.add_argument("--reason", default="", metavar="TEXT", help="Why it is changed, for the audit trail.")
        parser.add_argument("--format", choices=("text", "json"), default="text", help="Of --history and --reference.")
        either = parser.add_mutually_exclusive_group()
        for verb in VERBS.values():
            either.add_argument(f"--{verb.name}", action="store_const", const=verb, dest="verb", help=verb.help)
        either.add_argument(
            "--derive",
            metavar="LABEL",
            help="Print only the key that derive(LABEL) gave to a provider, to look the effect up there.",
        )
        either.add_argument("--history", action="store_true", help="Show its audit trail, also after it was deleted.")
        parser.add_argument(
            "--execution",
            metavar="NAME",
            help="Show whether this durable execution has suspended it; an intervention then applies even so.",
        )
        parser.add_argument("--no-body", action="store_true", help="Leave out the body of the response.")

    def handle(self, *args: Any, **options: Any) -> None:
        self.alias: str = options["store"] or conf.get("STORE")
        self.reason: str = options["reason"]
        self.as_json: bool = options["format"] == "json"
        if options["reference"] is not None:
            self.refer(options["reference"])
            return
        if options["scope"] is None:
            raise CommandError("Type a scope and a key, the operation_ref of a problem document, or --reference.")
        ids = self.referred(options["scope"]) if options["key"] is None else self.named(options)
        try:
            store = stores.outermost(stores[self.alias])
            self.id = next((name for name in ids if len(ids) > 1 and store.get(name) is not None), next(iter(ids)))
            self.scope = ids[self.id]
            if options["history"]:
                self.history()
            elif options["verb"]:
                self.intervene(store, options["verb"], options["execution"])
            elif options["derive"] is not None:
                self.derive(store, options["derive"])
            else:
                self.show(store, body_allowed=not options["no_body"], execution=options["execution"])
        except MISCONFIGURED as error:
            raise CommandError(advice(error, self.alias, conf.get("STORES"))) from error
        except RecordUnreadable as error:
            raise CommandError(
                f"The record {self.id} in the store {self.alias!r} cannot be read: it is damaged, or was written by a later "
                "version. No request with this key runs. Install that version, or delete the record in the store."
            ) from error
        except LostRace as error:
            raise CommandError("Another process changed the record first, and nothing was done. Try again.") from error
        except (StoreUnavailable, OutcomeUnknown) as error:
            raise CommandError(f"The store {self.alias!r} did not respond: {reason(error)}") from error

    def named(self, options: dict[str, Any]) -> dict[UUID, str]:
        """Return the ids that a scope and a key may have, and the scope of each."""
        scopes, self.key = spellings(options["scope"], realm=options["realm"]), options["key"]
        try:
            return {record_id(scope, self.key): scope for scope in scopes}
        except UnicodeEncodeError as error:
            raise CommandError(f"The key {self.key!r} is not UTF-8, and no record has such a key.") from error

    def referred(self, ref: str) -> dict[UUID, str]:
        """Return the id that an `operation_ref` names. Its scope and key are in the record."""
        record = record_of_ref(conf.derive_secrets(), ref)
        if record is None:
            raise CommandError(
                f"{ref!r} is no operation_ref that a secret of this project has signed. Type one, or a scope and a key."
            )
        self.key = ""
        return {record: ""}

    # --------------------------------------------------------------------------------------------------------- audit

    def history(self) -> None:
        known = timeline(self.id)
        if not (known.entries or known.references):
            raise CommandError("The audit trail has nothing of this key.")
        found = map(as_json, (*known.entries, *known.references)) if self.as_json else history_lines(known)
        for line in found:
            self.stdout.write(line)

    def refer(self, typed: str) -> None:
        found = referring(typed)
        if not found:
            raise CommandError(f"No key refers to {plain(typed)}.")
        for each in found:
            self.stdout.write(as_json(each) if self.as_json else reference_line(each))

    # ---------------------------------------------------------------------------------------------------------- show

    def show(self, store: BaseStore, *, body_allowed: bool, execution: str | None) -> None:
        record = store.get(self.id)
        if record is None:
            raise CommandError(self.unknown(store))
        kinds = " → ".join(type(layer).__name__ for layer in layers(store))
        shown = lines(
            record,
            store=f"{self.alias} ({kinds})",
            reference=operation_ref(conf.derive_secret(), record.id),
            purged=not store.expires_natively,
            body_allowed=body_allowed,
            repeats=store.repeats(record.id) if conf.get("COUNT_REPLAYS") else None,
        )
        for line in shown:
            self.stdout.write(line)
        if execution:
            sleeps = "is" if Execution(execution).has_suspended(record) else "is not"
            self.stdout.write(f"\nIt {sleeps} suspended by the durable execution {plain(execution)}.")

    def derive(self, store: BaseStore, label: str) -> None:
        record = store.get(self.id)
        if record is None:
            raise CommandError(self.unknown(store))
        if record.scope.startswith(HASHED):
            if not self.key:
                raise CommandError(
                    "The record has hashes of its scope and its key. Type both, instead of the operation_ref."
                )
            record = record._replace(scope=self.scope, key=self.key)
        try:
            self.stdout.write(derived_by(record, label))
            if rules.expired(record):
                # In `atomic` a new life is written with its settle: one that crashed has left the record as it was.
                self.stderr.write(
                    "The record has expired. The same request, if it has come again since and crashed, derived another key:\n"
                    + derived_by(record, label, next_life=True)
                )
        except OperationUnknown as error:
            raise CommandError(
                "The record is free for another body, and each body derives a key of its own: the log has the requests."
            ) from error
        except SecretUnknown as error:
            raise CommandError(str(error)) from error

    def unknown(self, store: BaseStore) -> str:
        """Return the error message for a missing record, with the scopes that may have been meant."""
        if innermost(store).in_process:
            return f"The store {self.alias!r} is a {type(innermost(store)).__name__}: its records are in the memory of the server process."
        if not self.key:
            return f"The store {self.alias!r} has no record of this operation_ref: it has expired and been deleted, or is in another store."
        others = [alias for alias in conf.get("STORES") if alias != self.alias]
        elsewhere = f", or be in another store: type --store and one of {', '.join(others)}" if others else ""
        user = settings.AUTH_USER_MODEL.lower()
        return (
            f"The store {self.alias!r} has no record of the scope {self.scope!r} and the key {self.key!r}.\n"
            "Both must be exact, and the key is without the quotes of its header. A scope is one of\n"
            f"  user:<app.model>:<pk>  of a user, such as user:{user}:7\n"
            "  scope:<name>           where a policy's scope function returned that name, which may be stored as its hash\n"
            "  call:<name>            of a guarded function: its key_prefix, or its module and qualified name\n"
            f'  {ANONYMOUS:<21}  where a policy says anonymous="shared"\n'
            "with realm:<name>/ before it, or --realm <name>, where a realm is set, and with database:<alias>/ before the\n"
            "user: of a database other than the default one.\n"
            f"The record may also have expired and been deleted{elsewhere}."
        )

    # ----------------------------------------------------------------------------------------------------- intervene

    def intervene(self, store: BaseStore, verb: Verb, execution: str | None) -> None:
        """Act through all layers of the store, so that no copy is left in a front."""
        before: list[Record] = []
        try:
            ended = self.release_suspended(store, verb, execution, before.append) or getattr(store, verb.name)(
                self.id, audit=before.append
            )
        except (StoreUnavailable, OutcomeUnknown) as error:
            if not before:
                raise
            self.audit(verb, before[-1], sure=False)
            raise CommandError(
                f"It is unknown whether it was {verb.done.lower()}: the store {self.alias!r} did not respond. "
                f"{reason(error)}\nType the command again; it reports if there is nothing left to do."
            ) from error
        match ended:
            case Intervention.DONE:
                record = before[0]
                self.audit(verb, record)
                path = plain(redaction.text(record.path))
                was = f"It was {display_status(record).label}, attempt {record.attempt}, {record.method} {path}"
                self.stdout.write(f"{verb.done}. {was}.")
                self.then(store)
            case Intervention.ALREADY:
                self.stdout.write(f"{verb.already}. Nothing was changed.")
                self.then(store)
            case Intervention.BUSY:
                raise CommandError(
                    "Refused: a request with its key is running, and holds the record. Nothing was changed. "
                    f"{self.lease(store)}Try again later."
                )
            case Intervention.GONE:
                raise CommandError(self.unknown(store))

    def release_suspended(
        self, store: BaseStore, verb: Verb, execution: str | None, audit: Audit
    ) -> Intervention | None:
        """Free a record that an execution has suspended; `None` if it has not."""
        if not execution:
            return None
        done = release_suspended(store, Execution(execution), self.id, audit=audit, forgetting=verb.name != "release")
        return Intervention.DONE if done and verb.name != "erase" else None

    def then(self, store: BaseStore) -> None:
        """Print what the next request gets; nothing if the store no longer responds."""
        try:
            record = store.get(self.id)
        except IdempotencyError:
            return
        gets = (
            "runs the work as the first one."
            if record is None
            else next_answer(record, purged=not store.expires_natively)
        )
        self.stdout.write(f"A request with this key now {gets}")

    def lease(self, store: BaseStore) -> str:
        """Return a sentence about when the lease ends; "" if there is none."""
        record = store.get(self.id)
        if record is None or not rules.leased(record):
            return ""
        return f"Its lease ends in {span(record.lease_until - record.read_at)}, unless its owner is still alive and renews it. "

    def audit(self, verb: Verb, record: Record, *, sure: bool = True) -> None:
        """Log who changed the record, and its state before. Not `sure`: the outcome of the change is unknown."""
        facts: dict[str, Any] = {
            "event": f"{verb.done.lower()}_by_hand",
            "sure": sure,
            "user": operator(),
            "store": self.alias,
            "id": str(record.id),
            "key": shortened(record.key),
            "scope": record.scope,
            "method": record.method,
            "path": record.path,
            "status": record.status.name.lower(),
            "attempt": record.attempt,
        }
        if sure:
            trail.intervened(facts["event"], record, actor=operator(), reason=self.reason)
        logger.warning(
            "%s by hand%s, by %s: record %s of %s in the store %s. It was %s, attempt %d.",
            verb.done,
            "" if sure else ", perhaps: the store did not respond",
            *(facts[fact] for fact in ("user", "id", "scope", "store", "status", "attempt")),
            extra={"idempotency": facts},
        )
