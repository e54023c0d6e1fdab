"""What an operator of the admin can do about the steps of a record."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db import DatabaseError
from django.utils.translation import gettext, ngettext_lazy
from django.utils.translation import gettext_lazy as _

from ... import conf
from ...core.interventions import Intervention
from ...core.policy import seconds
from ...errors import IdempotencyError, StepsNotUndone
from ...inspection.interventions import Verb
from ...stores.base import Audit
from .intervening import UndoneByHand, undo_by_hand
from .journal import database_of


class UndoVerb(Verb):
    """Undoes the steps of a record."""

    @property
    def permission(self) -> str:
        return "idempotency_steps.undo_step"

    def act(self, store: Any, record_id: UUID, *, audit: Audit) -> Intervention:
        """See `undo_by_hand()`. Raises `StepsNotUndone` if something is left for a person, or for a later try.

        If the database of the steps is away, raises `IdempotencyError`: the next try goes on.
        """
        ttl = seconds(conf.get("TTL"))
        try:
            undone = undo_by_hand(store, record_id, using=database_of(store), audit=audit, ttl=ttl)
        except DatabaseError as error:
            reason = {"error": type(error).__name__}
            raise IdempotencyError(
                gettext("The steps cannot be undone now: %(error)s. Try again later.") % reason
            ) from error
        if undone.failed or undone.doubtful:
            raise StepsNotUndone(left_by(undone), failed=undone.failed, doubtful=undone.doubtful)
        return undone.outcome


def left_by(undone: UndoneByHand) -> str:
    """Return what a person should know of an operation that is not undone as a whole."""
    said = [gettext("The operation has given up.")]
    if undone.doubtful:
        names = {"steps": ", ".join(undone.doubtful)}
        said.append(gettext("Look at %(steps)s: nobody knows whether it had its effect.") % names)
    if undone.failed:
        failed = {"failed": undone.failed}
        said.append(gettext("Not all is undone yet, and it is tried again: %(failed)s") % failed)
    return " ".join(said)


UNDO = UndoVerb(
    name="undo",
    button=_("Undo the steps…"),
    title=_("Undo the steps of an operation"),
    warning=_(
        "The operation gives up: its steps that have an undo are undone in reverse, also one of which nobody knows whether "
        "it had its effect, and no step can follow. Retries get 409 operation-cancelled. First make sure that its client has "
        "not been given the result in another way. The undos run now, and may take a while."
    ),
    counted=ngettext_lazy("%d operation was undone.", "%d operations were undone."),
    logged=_("Undone. It was %(evidence)s, kept until %(expires)s. Reason: %(reason)s"),
    done="Undone",
    already_counted=ngettext_lazy(
        "%d operation has ended, or was undone before.", "%d operations have ended, or were undone before."
    ),
)
