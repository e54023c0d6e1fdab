"""Count the records of a store, for people and for a monitoring system."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from ..inspection.status import STATUSES, Tally
from .base import ScanningCommand
from .output import write_whole
from .textfile import of_store


class Stats(ScanningCommand):
    """Count a store's records by state. It also shows the oldest running one, how far the
    purge is behind, and the size. It reads all records, in bounded batches.

    when:
      Something seems stuck: a growing purge lag means that no purge runs, and a record that
      has been abandoned for long waits for a retry that does not come. It only reads.

    examples:
      %(prog)s
          Show the figures of the store that IDEMPOTENCY["STORE"] names.
      %(prog)s --store payments --format json
          Write those of another store for a program.
      %(prog)s --format textfile --output /srv/metrics/shop.prom
          Write them for Prometheus, from a cron job.

    exit status:
      0    All was done.
      1    Something failed. The message says how far it came.
      2    An option is wrong. Nothing was done.
    """

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--format",
            choices=("table", "json", "textfile"),
            default="table",
            help="A table; json; or a textfile, for the textfile collector of Prometheus' node "
            "exporter.",
        )
        parser.add_argument(
            "--output",
            type=Path,
            metavar="FILE",
            help="Write to this file, at once: no reader sees half of it.",
        )

    def look(self, **options: Any) -> None:
        tally = Tally()
        for record in self.records(options["batch_size"]):
            tally.add(record)
        tally.unreadable = self.unreadable
        size = self.store.size()
        figures = dict(tally.figures(purged=not self.store.expires_natively))
        match options["format"]:
            case "json":
                text = json.dumps(self.as_json(tally, figures, size), indent=2) + "\n"
            case "textfile":
                text = "".join(of_store(self.alias, self.counts(tally), figures, size))
            case _:
                text = "".join(self.as_table(tally, figures, size))
        if options["output"] is None:
            self.stdout.write(text, ending="")
        else:
            write_whole(options["output"], text, mode=0o644)  # the collector is another user

    def counts(self, tally: Tally) -> Iterator[tuple[str, int]]:
        for status in STATUSES:
            yield status, tally.by_status[status]
        yield "unreadable", tally.unreadable

    def as_json(self, tally: Tally, figures: dict[str, float], size: int | None) -> dict[str, Any]:
        records = {"total": tally.total, **dict(self.counts(tally))}
        return {"store": self.alias, "records": records, **figures, "store_size_bytes": size}

    def as_table(self, tally: Tally, figures: dict[str, float], size: int | None) -> Iterator[str]:
        for status, count in self.counts(tally):
            if count:
                yield f"{status:<28}{count:>16,}\n"
        yield f"{'records in all':<28}{tally.total:>16,}\n\n"
        for name, value in figures.items():
            yield f"{name.removesuffix('_seconds').replace('_', ' '):<28}{value:>14,.1f} s\n"
        if size is not None:
            yield f"{'size, with indexes':<28}{size / 2**20:>12,.1f} MiB\n"
