"""Remove what is stored about a person, and keep their keys used."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.management.base import CommandError, CommandParser
from django.db import DatabaseError

from ... import conf
from ...core import interventions
from ...core.at_rest import hashed_scope
from ...core.interventions import Intervention
from ...core.records import Record
from ...core.scope_names import observed, spellings
from ...errors import ConfigurationError
from ...inspection.terminal import plain
from ...instrumentation.trail import trail
from ...runtime.registry import records_of, stores
from ..operators import operator
from ..scanning import ScanningCommand

logger = logging.getLogger("django_idempotency")

#: The most other scopes that are named.
NAMED = 5


class Command(ScanningCommand):
    help = (
        "Erase what is stored about the owner of a scope, in every store and every front: responses, request digests, "
        "scopes, keys and paths. A key that was used stays used until its retention ends: a retry gets "
        "response-not-stored, and never runs. What runs or is held is left and reported, and the exit status is 1 then."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--scope", metavar="SCOPE", help='Whose: "user:42", "user:auth.user:42", "scope:shop-7".')
        parser.add_argument("--realm", metavar="NAME", help="The realm of the scope, if the scope does not name it.")
        parser.add_argument("--outbox-key", metavar="KEY", help="Delete the waiting messages with this key.")
        parser.add_argument("--call", metavar="NAME", help="Erase what is stored of outgoing calls with this name.")
        super().add_arguments(parser)
        parser.add_argument("--dry-run", action="store_true", help="Only count what would be erased.")
        parser.add_argument("--no-input", action="store_false", dest="asks", help="Do not ask for confirmation.")

    def handle(self, *args: Any, **options: Any) -> None:
        scope, key, call = options["scope"], options["outbox_key"], options["call"]
        if scope is None and key is None and call is None:
            raise CommandError('Type --scope and whose data it is, such as "user:42"; or --outbox-key, or --call.')
        if not (options["dry_run"] or self.confirmed(options)):
            raise CommandError("Nothing was erased.")
        self.left = 0
        if key is not None:
            self.erase_messages(key, dry=options["dry_run"])
        if call is not None:
            self.erase_calls(call, dry=options["dry_run"])
        if scope is not None:
            self.wanted = scopes_of(scope, options["realm"])
            self.elsewhere = Counter[str]()
            for alias in self.aliases(options["store"]):
                super().handle(*args, **{**options, "store": alias})
            self.erase_trail(options["batch_size"], dry=options["dry_run"])
            self.name_others()
        if self.left:
            raise CommandError(
                f"{self.left:,} left: a request, a relay, a provider or a person holds them. Type the command again in a while."
            )

    def confirmed(self, options: dict[str, Any]) -> bool:
        if not options["asks"]:
            return True
        if not sys.stdin.isatty():
            raise CommandError("Nobody can be asked here. Type --no-input to erase, or --dry-run to count.")
        which = " and ".join(
            plain(each) for each in (options["scope"], options["outbox_key"], options["call"]) if each is not None
        )
        return input(f"Erase what is stored of {which}? It cannot be undone. Type yes: ").strip().lower() == "yes"

    def aliases(self, chosen: str | None) -> Iterator[str]:
        """Yield the chosen alias; or one for each set of records."""
        seen = []
        for alias in [chosen] if chosen else conf.get("STORES"):
            try:
                records = records_of(stores[alias])
            except Exception:  # noqa: BLE001 - reported when its turn comes
                yield alias
                continue
            if records not in seen:
                seen.append(records)
                yield alias

    def look(self, **options: Any) -> None:
        self.store = stores.outermost(self.store)  # so that a change reaches every front
        steps = self.table_of_steps()
        self.seen, counted = 0, Counter[Intervention]()
        try:
            for record in self.records(options["batch_size"]):
                if record.scope not in self.wanted:
                    self.note(record)
                    continue
                if options["dry_run"]:
                    counted[Intervention.DONE] += 1
                else:
                    # First its steps: after a crash in between, the record is still found by its scope.
                    if steps is not None and interventions.forgotten(record) is not Intervention.BUSY:
                        self.erase_steps(steps, record)
                    counted[self.patiently(partial(self.store.forget, record.id, audit=noted))] += 1
        finally:
            erased, left = counted[Intervention.DONE], counted[Intervention.BUSY]
            self.left += left
            if counted and not options["dry_run"]:
                self.log(erased, left)
        would = "would be erased" if options["dry_run"] else "erased"
        busy = f", {left:,} left, which run or are held" if left else ""
        self.stdout.write(f"The store {self.alias!r}: {erased:,} of {self.seen:,} records {would}{busy}.")
        if self.unreadable:
            self.stdout.write(f"{self.unreadable:,} records cannot be read, and were left.")

    def table_of_steps(self) -> str | None:
        """Return the database that has the steps of the store's records; `None`: there are none."""
        if not apps.is_installed("django_idempotency.contrib.steps"):
            return None
        from ...contrib.steps.housekeeping import table_of  # not above: loads its model

        return table_of(self.store)

    def erase_steps(self, using: str, record: Record) -> None:
        from ...contrib.steps.housekeeping import erase  # not above: loads its model

        try:
            erase(using, record.id)
        except DatabaseError as error:
            raise CommandError(f"The steps cannot be erased: {error}") from error

    def note(self, record: Record) -> None:
        """Count records that may belong to the same person, in another realm or database."""
        if any(record.scope.endswith(f"/{scope}") for scope in self.wanted):
            self.elsewhere[record.scope] += 1

    def name_others(self) -> None:
        for scope, count in self.elsewhere.most_common(NAMED):
            self.stdout.write(
                f"{count:,} more belong to {plain(scope)}. Type --scope {plain(scope)} if that is the same person."
            )

    def log(self, erased: int, left: int) -> None:
        facts = {"event": "erased_scope", "user": operator(), "store": self.alias, "erased": erased, "left": left}
        logger.warning(
            "Erased by %s: %d records of one scope in the store %s; %d left.",
            *(facts[name] for name in ("user", "erased", "store", "left")),
            extra={"idempotency": facts},
        )

    def erase_trail(self, size: int, *, dry: bool) -> None:
        if not apps.is_installed("django_idempotency.contrib.audit"):
            return
        from ...contrib.audit.erasing import erase  # not above: loads its models

        try:
            found = erase(self.wanted, size=size, dry=dry)
        except DatabaseError as error:
            raise CommandError(f"The audit trail cannot be erased: {error}") from error
        if found:
            would = "would be erased" if dry else "erased: what happened stays, and not to whom"
            self.stdout.write(f"The audit trail: {found:,} rows {would}.")

    def erase_messages(self, key: str, *, dry: bool) -> None:
        if not apps.is_installed("django_idempotency.contrib.outbox"):
            raise CommandError('INSTALLED_APPS has no "django_idempotency.contrib.outbox", so no message has a key.')
        from ...contrib.outbox.erasing import erase  # not above: loads its model

        try:
            erased, left = erase(key, dry=dry)
        except ConfigurationError as error:
            raise CommandError(str(error)) from error
        self.left += left
        would = "would be deleted" if dry else "deleted, and are never published"
        busy = f", {left:,} left, which a relay holds" if left else ""
        self.stdout.write(f"The outbox: {erased:,} messages {would}{busy}.")

    def erase_calls(self, name: str, *, dry: bool) -> None:
        if not apps.is_installed("django_idempotency.contrib.client"):
            raise CommandError('INSTALLED_APPS has no "django_idempotency.contrib.client", so no call has a name.')
        from ...contrib.client.housekeeping import erase  # not above: loads its model

        erased, left = erase(name, dry=dry)
        self.left += left
        would = "would be erased" if dry else "erased"
        busy = f", {left:,} left, which have not ended" if left else ""
        self.stdout.write(f"Outgoing calls: {erased:,} {would}{busy}.")


def scopes_of(typed: str, realm: str | None) -> frozenset[str]:
    """Return the stored scopes that a typed one may mean, also of keys that were only observed."""
    front, user, name = typed.rpartition("user:")
    if user and ":" not in name and (not front or front.endswith("/")):
        typed = f"{front}user:{settings.AUTH_USER_MODEL.lower()}:{name}"
    found = spellings(typed, realm=realm)
    plain_scopes = (*found, *map(observed, found))
    hashes = [hashed_scope(secret, scope) for secret in conf.derive_secrets() for scope in plain_scopes]
    return frozenset((*plain_scopes, *hashes))


def noted(record: Record) -> None:
    """Leave a trace of the erasure in the audit trail, if there is one. It does not say whose record it was."""
    trail.intervened("erased", record, actor=operator())
