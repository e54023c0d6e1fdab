"""Create the tables of stores that migrations do not make: DynamoDB's."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from .. import conf
from ..stores.base import innermost
from .base import StoreCommand


class Create(StoreCommand):
    """Create the tables that stores need and migrations do not make, those of DynamoDB, and
    let it delete expired records. Existing tables are kept.

    when:
      At every deployment, or when requests get 503 and the log says that the table is
      missing.

    examples:
      %(prog)s
          Create what is missing.
      %(prog)s --store dynamo --dry-run
          Show what one store would need.

    exit status:
      0    All was done.
      1    Something failed. The message says how far it came.
      2    An option is wrong. Nothing was done.
    """

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--store", metavar="ALIAS", help="Only the table of this store.")
        parser.add_argument(
            "--dry-run", action="store_true", help="Show what would be done, and change nothing."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        self.named = options["store"]
        for alias in [options["store"]] if options["store"] else conf.get("STORES"):
            super().handle(*args, **{**options, "store": alias})

    def look(self, **options: Any) -> None:
        store = innermost(self.store)
        if store.creates_table:
            for sentence in store.create_table(dry_run=options["dry_run"]):
                self.say(f"{self.alias}: {sentence}")
        elif self.named:
            self.say(f"{self.alias}: It has no table to create, as a DynamoDBStore has.")
