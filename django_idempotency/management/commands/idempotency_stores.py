"""Look after the stores: count their records, create their tables, and what apps add."""

from __future__ import annotations

from ..parts import HelpedCommand, Subcommands
from ..stats import Stats
from ..tables import Create


class Command(Subcommands):
    """Look after the stores of IDEMPOTENCY: one of the subcommands below.

    when:
      You want to know what a store holds, a table is missing, or the keys of
      ENCRYPTION_KEYS have changed. Type --help behind a subcommand for more.

    examples:
      %(prog)s stats
          Count the records of the store by their state.
      %(prog)s create
          Create the table of a DynamoDB store.

    exit status:
      0    All was done.
      1    Something failed. The message says how far it came.
      2    An option is wrong. Nothing was done.
    """

    name = "idempotency_stores"

    def works(self) -> dict[str, type[HelpedCommand]]:
        return {"stats": Stats, "create": Create, **super().works()}
