"""Finish what died halfway: operations of several steps, and calls to providers."""

from __future__ import annotations

from ..parts import Subcommands


class Command(Subcommands):
    """Finish what died halfway. The app django_idempotency.contrib.steps adds the
    subcommand operations, and django_idempotency.contrib.client adds calls.

    when:
      From a cron job every few minutes; and by hand when a worker was killed and its client
      does not come again, or an operation is to be undone. Several may run at once.

    examples:
      %(prog)s operations
          Finish or undo operations that died between two steps.
      %(prog)s operations --undo op_…
          Undo the steps of one operation that is held.
      %(prog)s calls
          List calls to providers whose process died.
      %(prog)s calls --send
          Send them again with their keys.

    exit status:
      0    All was done.
      1    Something is left or failed. The message says how far it came.
      2    An option is wrong. Nothing was done.
    """

    name = "idempotency_resume"
