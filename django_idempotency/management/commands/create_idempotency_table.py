"""Create the tables of the DynamoDB stores."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from ... import conf
from ...errors import ConfigurationError, StoreUnavailable
from ...runtime.registry import stores
from ...stores.base import innermost


class Command(BaseCommand):
    help = (
        'Create the table of each DynamoDB store in IDEMPOTENCY["STORES"], and let '
        "DynamoDB delete expired records. "
        "Existing tables are kept, so it can run at every deployment."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--store", metavar="ALIAS", help="Only the table of this store.")
        parser.add_argument(
            "--dry-run", action="store_true", help="Show what would be done, and change nothing."
        )

    def handle(self, **options: Any) -> None:
        said = []
        only = options["store"]
        for alias in [only] if only else conf.get("STORES"):
            try:
                store = innermost(stores[alias])
                if store.creates_table:
                    for sentence in store.create_table(dry_run=options["dry_run"]):
                        said.append(f"{alias}: {sentence}")
                        if options["verbosity"] > 0:
                            self.stdout.write(said[-1])
                elif only:
                    raise CommandError(
                        f"The store {alias!r} is of class {type(store).__name__}, which "
                        "has no table to create here."
                    )
            except (ConfigurationError, ImproperlyConfigured) as error:
                raise CommandError(f"{alias}: {error}") from error
            except StoreUnavailable as error:
                cause = " ".join(str(error.__cause__ or error).split())
                raise CommandError(f"{alias}: the server refused or failed: {cause}") from error
        if not said and options["verbosity"] > 0:
            self.stdout.write(
                'No store in IDEMPOTENCY["STORES"] has a table to create, as a DynamoDBStore has.'
            )
