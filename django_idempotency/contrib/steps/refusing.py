"""Where a step cannot be, and where an operation cannot give up."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from django.db import connections

from ...errors import ConfigurationError
from ...runtime.current_step import current_step
from ...runtime.transactions import in_transaction
from .terms import StepTerms


def refuse_nested(name: str) -> None:
    """Raise `ConfigurationError` for a step inside a step."""
    if (outer := current_step()) is not None:
        raise ConfigurationError(
            f"The step {name!r} is inside the step {outer.name!r}: steps are not nested. Call it after that."
        )


def refuse_misplaced(terms: StepTerms, *, unfinished: str | None, earlier: AbstractSet[str], atomic: bool) -> None:
    """Raise `ConfigurationError` for a step that cannot follow the earlier ones, or that `atomic` does not cover."""
    if unfinished is not None:
        raise ConfigurationError(
            f"The step {terms.name!r} cannot begin, because {unfinished!r} has not ended: it still runs, or it has raised "
            "what is not its result. Let that exception end the attempt, or name it in keep=[…]."
        )
    if terms.name in earlier:
        raise ConfigurationError(f"There are two steps {terms.name!r} in this operation: give each its own name.")
    if atomic and not (terms.here and terms.undo is None):
        raise ConfigurationError(
            f'The step {terms.name!r} calls elsewhere, or has an undo, and the guarantee is "atomic": all that the view '
            'writes is rolled back together, and a call elsewhere is not. Type guarantee="lease".'
        )


def refuse_giving_up(*, atomic: bool) -> None:
    """Raise `ConfigurationError` where an operation cannot give up."""
    if atomic:
        raise ConfigurationError(
            'undo_steps() under the guarantee "atomic": raise an exception, and all that the view wrote is rolled back.'
        )
    if (outer := current_step()) is not None:
        raise ConfigurationError(f"undo_steps() is inside the step {outer.name!r}: call it after that.")


def refuse_transaction(what: str, using: str) -> None:
    """Raise `ConfigurationError` in an open transaction."""
    if in_transaction(connections[using]):
        raise ConfigurationError(
            f"{what} is inside an open transaction, whose rollback would forget it. Call it outside of atomic(), and put "
            "@transaction.non_atomic_requests on the view if ATOMIC_REQUESTS is on."
        )
