"""Remove what is stored about a person, and keep their keys used."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser

from ..... import conf
from .....api import Record, Status
from .....core import interventions
from .....core.at_rest import hashed_scope
from .....core.interventions import Intervention
from .....inspection.terminal import plain
from .....instrumentation.trail import trail
from .....management.base import ScanningCommand
from .....management.output import operator
from .....runtime.app_extensions import app_extensions
from .....runtime.registry import stores
from .....scopes import observed, spellings
from .....stores.base import records_of
from ....optional_app import housekeeping

logger = logging.getLogger("django_idempotency")

#: The most other scopes that are named.
NAMED = 5


class Command(ScanningCommand):
    """Erase what is stored about the owner of a scope, in every store and every front:
    responses, request digests, scopes, keys and paths. A key that was used stays used until
    its retention ends: a retry gets response-not-stored, and never runs.

    when:
      A person asks for it. It cannot be undone, and asks before it begins. What runs or is
      held is left: type it again in a while.

    examples:
      %(prog)s --scope user:42 --dry-run
          Count what is stored about a user.
      %(prog)s --scope user:42
          Erase it, after a question.
      %(prog)s --scope user:42 --realm eu --no-input
          Erase it in one realm, from a script.

    exit status:
      0    All was done.
      1    Something is left, since a request, a relay, a provider or a person holds it.
      2    An option is wrong. Nothing was done.
      130  It was interrupted. Type it again: what is erased is skipped.
    """

    requires_system_checks = "__all__"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--scope",
            metavar="SCOPE",
            help='Whose: "user:42", "user:auth.user:42", "scope:shop-7".',
        )
        parser.add_argument(
            "--realm", metavar="NAME", help="The realm of the scope, if the scope does not name it."
        )
        self.others = [name for app in housekeeping() for name in app.add_erase_arguments(parser)]
        super().add_arguments(parser)
        parser.add_argument(
            "--dry-run", action="store_true", help="Only count what would be erased."
        )
        parser.add_argument(
            "--no-input", action="store_false", dest="asks", help="Do not ask for confirmation."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        scope = options["scope"]
        dry = options["dry_run"]
        named = [options[name] for name in ("scope", *self.others) if options[name] is not None]
        if not named:
            others = ", or ".join(f"--{name.replace('_', '-')}" for name in self.others)
            raise CommandError(
                "Type --scope and whose data it is, such as "
                f'"user:42"{others and f"; or {others}"}.'
            )
        if not (dry or confirmed(named, asks=options["asks"])):
            raise CommandError("Nothing was erased.")
        self.left = 0
        self.would = "would be erased" if dry else "erased"
        self.wanted = frozenset[str]() if scope is None else scopes_of(scope, options["realm"])
        self.elsewhere = Counter[str]()
        failed: list[str] = []
        for alias in () if scope is None else aliases(options["store"]):
            try:
                super().handle(*args, **{**options, "store": alias})
            except CommandError as error:
                if error.returncode != 1:  # interrupted
                    raise
                failed.append(str(error))
        self.failed = failed
        for app in housekeeping():
            with (
                self.going_on(),
                self.table_explained("What is kept beside the records cannot be erased:"),
            ):
                for each in app.erase(
                    options, scopes=self.wanted, size=options["batch_size"], dry=dry
                ):
                    self.report(f"{each.erased:,} {each.kind}", each.left, each.held_by)
        for other, count in self.elsewhere.most_common(NAMED):
            self.stdout.write(
                f"{count:,} more belong to {plain(other)}. Type --scope {plain(other)} if "
                "that is the same person."
            )
        if self.left:
            self.failed.append(
                f"{self.left:,} left: a request, a relay, a provider or a person holds "
                "them. Type the command again in a while."
            )
        self.require_all()

    def look(self, **options: Any) -> None:
        self.store = stores.outermost(self.store)  # so that a change reaches every front
        self.seen = 0
        self.owed = 0
        counted = Counter[Intervention]()
        try:
            for record in self.records(options["batch_size"]):
                if record.scope in self.wanted:
                    counted[Intervention.DONE if options["dry_run"] else self.erase(record)] += 1
                elif any(record.scope.endswith(f"/{scope}") for scope in self.wanted):
                    self.elsewhere[record.scope] += (
                        1  # perhaps the same person, in another realm or database
                    )
        finally:
            erased = counted[Intervention.DONE]
            left = counted[Intervention.BUSY]
            if counted and not options["dry_run"]:
                facts = {"user": operator(), "store": self.alias, "erased": erased, "left": left}
                logger.warning(
                    "Erased by %(user)s: %(erased)d records of one scope in the store "
                    "%(store)s; %(left)d left.",
                    facts,
                    extra={"idempotency": {"event": "erased_scope", **facts}},
                )
        self.report(
            f"The store {self.alias!r}: {erased:,} of {self.seen:,} records",
            left,
            "run or are held",
        )
        if self.owed:
            self.report(
                "Operations whose steps are undone: 0",
                self.owed,
                "need their results: see idempotency_resume operations",
            )
        if self.unreadable:
            self.stdout.write(f"{self.unreadable:,} records cannot be read, and were left.")

    def erase(self, record: Record) -> Intervention:
        """Erase a record, and leave a trace of that in the audit trail, if there is one, which does
        not say whose it was.
        """
        # What ended: first what is kept beside it, so that after a crash in between the record is
        # still found by its scope. What may be claimed again: afterwards, since an attempt that
        # begins meanwhile needs it.
        first = (
            record.status is Status.COMPLETED
            and interventions.forgotten(record) is not Intervention.BUSY
        )
        if first:
            self.erase_beside(record, erased=False)
        noted = partial(trail.intervened, "erased", actor=operator())
        change = partial(self.store.change, record.id, interventions.forgotten, audit=noted)
        changed = self.patiently_or(Intervention.BUSY, change)
        if changed is Intervention.DONE and not first:
            self.owed += self.erase_beside(record, erased=True)
        return changed

    def erase_beside(self, record: Record, *, erased: bool) -> int:
        """See Extension.erase_record()."""
        with self.table_explained("What is kept beside a record cannot be erased:"):
            return sum(
                extension.erase_record(self.store, record.id, erased=erased)
                for extension in app_extensions()
            )

    def report(self, what: str, left: int, held_by: str) -> None:
        self.left += left
        self.stdout.write(
            f"{what} {self.would}{f', {left:,} left, which {held_by}' if left else ''}."
        )


def confirmed(named: list[str], *, asks: bool) -> bool:
    if not asks:
        return True
    if not sys.stdin.isatty():
        raise CommandError(
            "Nobody can be asked here. Type --no-input to erase, or --dry-run to count."
        )
    which = " and ".join(map(plain, named))
    return (
        input(f"Erase what is stored of {which}? It cannot be undone. Type yes: ").strip().lower()
        == "yes"
    )


def aliases(chosen: str | None) -> Iterator[str]:
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


def scopes_of(typed: str, realm: str | None) -> frozenset[str]:
    """Return the stored scopes that a typed one may mean, also of keys that were only observed."""
    front, user, name = typed.rpartition("user:")
    if user and ":" not in name and (not front or front.endswith("/")):
        typed = f"{front}user:{settings.AUTH_USER_MODEL.lower()}:{name}"
    found = spellings(typed, realm=realm)
    plain_scopes = (*found, *map(observed, found))
    hashes = [
        hashed_scope(secret, scope) for secret in conf.derive_secrets() for scope in plain_scopes
    ]
    return frozenset((*plain_scopes, *hashes))
