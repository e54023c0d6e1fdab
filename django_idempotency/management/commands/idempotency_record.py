"""Show one record of any store, as the admin does; and release, expire or erase it."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from ... import conf
from ...core import rules
from ...core.at_rest import HASHED
from ...core.hashing import operation_ref
from ...errors import LostRace, OperationUnknown, OutcomeUnknown, RecordUnreadable, SecretUnknown, StoreUnavailable
from ...inspection.failures import MISCONFIGURED, advice, reason
from ...inspection.interventions import VERBS
from ...inspection.terminal import lines, plain
from ...runtime.derivation import derived_by
from ...stores.wrapper import layers
from ..arguments import add_record
from ..by_hand import intervene, named
from ..sought import Sought, sought


class Command(BaseCommand):
    #: It is needed most when something is wrong, perhaps with a route that has nothing to do with it.
    requires_system_checks = ()
    help = (
        "Show the record of one idempotency key, and what a request with it would get now. --release, --expire and "
        "--erase change it, unless a request holds the record. If one does, or there is no record, the exit status is 1."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        add_record(parser)
        parser.add_argument("--reason", default="", metavar="TEXT", help="Why it is changed, for the audit trail.")
        either = parser.add_mutually_exclusive_group()
        for verb in VERBS.values():
            either.add_argument(f"--{verb.name}", action="store_true", help=verb.help)
        either.add_argument(
            "--derive",
            metavar="LABEL",
            help="Print only the key that derive(LABEL) gave to a provider, to look the effect up there.",
        )
        parser.add_argument(
            "--execution",
            metavar="NAME",
            help="Show whether this durable execution has suspended it; an intervention then applies even so.",
        )
        parser.add_argument("--no-body", action="store_true", help="Leave out the body of the response.")

    def handle(self, *args: Any, **options: Any) -> None:
        alias: str = options["store"] or conf.get("STORE")
        try:
            self.look(sought(alias, options["scope"], options["key"], realm=options["realm"]), options)
        except MISCONFIGURED as error:
            raise CommandError(advice(error, alias, conf.get("STORES"))) from error
        except LostRace as error:
            raise CommandError("Another process changed the record first, and nothing was done. Try again.") from error
        except (StoreUnavailable, OutcomeUnknown) as error:
            raise CommandError(f"The store {alias!r} did not respond: {reason(error)}") from error

    def look(self, found: Sought, options: dict[str, Any]) -> None:
        """Show the record, or change it."""
        execution: str | None = options["execution"]
        verbs = [verb for verb in VERBS.values() if options[verb.name]]
        if len(verbs) > 1:  # of call_command(): the command line refuses that itself
            raise CommandError("Choose one of --release, --expire and --erase.")
        try:
            if verbs:
                for line in intervene(found, verbs[0], why=options["reason"], execution=execution):
                    self.stdout.write(line)
            elif options["derive"] is not None:
                self.derive(found, options["derive"])
            else:
                self.show(found, body_allowed=not options["no_body"], execution=execution)
        except RecordUnreadable as error:
            raise CommandError(
                f"The record {found.id} in the store {found.alias!r} cannot be read: it is damaged, or was written by a later "
                "version. No request with this key runs. Install that version, or delete the record in the store."
            ) from error

    # ---------------------------------------------------------------------------------------------------------- show

    def show(self, found: Sought, *, body_allowed: bool, execution: str | None) -> None:
        record, store = found.get(), found.store
        kinds = " → ".join(type(layer).__name__ for layer in layers(store))
        shown = lines(
            record,
            store=f"{found.alias} ({kinds})",
            reference=operation_ref(conf.derive_secret(), record.id),
            purged=not store.expires_natively,
            body_allowed=body_allowed,
            repeats=store.repeats(record.id) if conf.get("COUNT_REPLAYS") else None,
        )
        for line in shown:
            self.stdout.write(line)
        if execution:
            sleeps = "is" if named(execution).has_suspended(record) else "is not"
            self.stdout.write(f"\nIt {sleeps} suspended by the durable execution {plain(execution)}.")

    def derive(self, found: Sought, label: str) -> None:
        record = found.get()
        if record.scope.startswith(HASHED):
            if not found.key:
                raise CommandError(
                    "The record has hashes of its scope and its key. Type both, instead of the operation_ref."
                )
            record = record._replace(scope=found.scope, key=found.key)
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
