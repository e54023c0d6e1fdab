"""Seal stored responses with the first key of ENCRYPTION_KEYS, or store them unsealed again."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import partial
from typing import Any

from django.core.management.base import CommandError, CommandParser

from ...management.arguments import not_negative, positive
from ...management.base import ScanningCommand
from ...runtime.registry import stores
from ...stores.base import layers
from ..optional_app import housekeeping
from .sealed import Resealing, SealedStore


class Reseal(ScanningCommand):
    """Seal every stored response with the first key of ENCRYPTION_KEYS; if that is None, store
    it unsealed. It reads the records in bounded batches and changes one at a time, beside
    traffic. Type it again after an interruption: what is done is skipped.

    when:
      After a new first key was deployed to all hosts, and before the old one is taken out
      of ENCRYPTION_KEYS.

    examples:
      %(prog)s --dry-run
          Count what would be resealed.
      %(prog)s --sleep 0.1
          Reseal with a pause after each batch, in busy hours.

    exit status:
      0    All was done.
      1    A response cannot be opened, or was locked. Add its key, or type it again.
      2    An option is wrong. Nothing was done.
    """

    requires_system_checks = "__all__"

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--limit", type=positive, metavar="ROWS", help="Reseal no more than these; all."
        )
        parser.add_argument(
            "--sleep",
            type=not_negative,
            default=0.0,
            metavar="SECONDS",
            help="After each batch; 0.",
        )
        parser.add_argument(
            "--dry-run", action="store_true", help="Only count what would be resealed."
        )

    def look(self, **options: Any) -> None:
        self.counted = Counter[Resealing]()
        self.store = stores.outermost(self.store)
        store = next(
            (layer for layer in layers(self.store) if isinstance(layer, SealedStore)), None
        )
        if store is None:
            raise CommandError(
                'IDEMPOTENCY["ENCRYPTION_KEYS"] is empty, so there is nothing to seal with '
                "and nothing to open with. To "
                'store responses unsealed again, type "ENCRYPTION_KEYS": [None, the keys '
                "that open them]."
            )
        dry = options["dry_run"]
        with self.going_on():
            self.reseal(store, options)
        beside = self.reseal_beside(size=options["batch_size"], dry=dry)
        self.end_progress()
        if dry:
            self.stdout.write(
                f"{self.counted[Resealing.DONE]:,} of {self.seen:,} responses would be resealed."
            )
        else:
            self.stdout.write(self.so_far())
        for kind, counted in beside.items():
            if done := counted[Resealing.DONE]:
                self.stdout.write(f"{done:,} {kind} {'would be ' if dry else ''}resealed.")
        kinds = {"responses": self.counted, **beside}
        if closed := [
            f"{count:,} {kind}" for kind, each in kinds.items() if (count := each[Resealing.CLOSED])
        ]:
            self.failed.append(
                f"{' and '.join(closed)} cannot be opened, and were left as they are: no "
                "key of ENCRYPTION_KEYS has sealed "
                "them, or they were changed. Retries get response-not-stored. Add the key, "
                "and type the command again."
            )
        if locked := self.counted[Resealing.LOCKED]:
            self.failed.append(
                f"{locked:,} responses are locked by others. Type the command again in a while."
            )
        self.require_all()

    def reseal(self, store: SealedStore, options: Mapping[str, Any]) -> None:
        limit = options["limit"]
        dry = options["dry_run"]
        for batch in store.store.scan(size=options["batch_size"]):
            self.seen += len(batch.records) + batch.unreadable
            for record in batch.records:
                if store.is_current(record):
                    continue
                if limit is not None and self.counted[Resealing.DONE] >= limit:
                    return
                ended = Resealing.DONE
                if not dry:
                    ended = self.patiently_or(Resealing.LOCKED, partial(store.reseal, record.id))
                self.counted[ended] += 1
            self.progress()
            time.sleep(options["sleep"])

    def reseal_beside(self, *, size: int, dry: bool) -> dict[str, Counter[Resealing]]:
        """Reseal what apps keep beside the records. Return what became of it, by its plural."""
        found: defaultdict[str, Counter[Resealing]] = defaultdict(Counter)
        for app in housekeeping():
            with (
                self.going_on(),
                self.table_explained("What is kept beside the records cannot be resealed:"),
            ):
                for kind, batch in app.reseal(self.store, size=size, dry=dry):
                    found[kind] += batch
                    self.progress()
        return found

    def so_far(self) -> str:
        return f"{self.counted[Resealing.DONE]:,} responses resealed. {super().so_far()}"

    def changed(self) -> str:
        return f"\n{self.so_far()}"
