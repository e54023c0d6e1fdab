"""Create the tables of the DynamoDB stores."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from ... import conf
from ...errors import ConfigurationError, StoreUnavailable
from ...runtime.registry import stores
from ...stores.base import BaseStore
from ...stores.wrapper import innermost


class Command(BaseCommand):
    help = (
        'Create the table of each DynamoDB store in IDEMPOTENCY["STORES"], and let DynamoDB delete expired records. '
        "Existing tables are kept, so it can run at every deployment."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--store", metavar="ALIAS", help="Only the table of this store.")
        parser.add_argument("--dry-run", action="store_true", help="Show what would be done, and change nothing.")

    def handle(self, **options: Any) -> None:
        try:
            found = self.found(options["store"])
        except ImproperlyConfigured as error:
            raise CommandError(str(error)) from error
        if not found and options["verbosity"] > 0:
            self.stdout.write('No store in IDEMPOTENCY["STORES"] has a table to create, as a DynamoDBStore has.')
        for alias, store in found.items():
            self.create(alias, store, options["dry_run"], options["verbosity"])

    def found(self, alias: str | None) -> dict[str, BaseStore]:
        """Return the stores with a table to create, by alias: all, or that of `alias`. Raises `CommandError`."""
        if alias is None:
            every = {name: innermost(stores[name]) for name in conf.get("STORES")}
            return {name: store for name, store in every.items() if store.creates_table}
        store = innermost(stores[alias])
        if not store.creates_table:
            kind = type(store).__name__
            raise CommandError(f"The store {alias!r} is of class {kind}, which has no table to create here.")
        return {alias: store}

    def create(self, alias: str, store: BaseStore, dry_run: bool, verbosity: int) -> None:
        try:
            for sentence in store.create_table(dry_run=dry_run):
                if verbosity > 0:
                    self.stdout.write(f"{alias}: {sentence}")
        except (ConfigurationError, ImproperlyConfigured) as error:
            raise CommandError(f"{alias}: {error}") from error
        except StoreUnavailable as error:
            cause = " ".join(str(error.__cause__ or error).split())
            raise CommandError(f"{alias}: {type(store).__name__}: the server refused or failed: {cause}") from error
