"""The steps of a record in Django's admin: a section of the record's page.

No result and no argument is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any
from uuid import UUID

from django.contrib.admin import AdminSite
from django.db import DatabaseError
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext, ngettext_lazy
from django.utils.translation import gettext_lazy as _

from ...admin.panels import ADDED_VERBS, PANELS
from ...api import BaseStore, seconds, setting
from ...core.interventions import Intervention
from ...errors import IdempotencyError, StepsNotUndone
from ...inspection.interventions import Verb
from ...models import IdempotencyRecord
from ...stores.base import Audit
from .intervening import UndoneByHand, newest_of, undo_by_hand
from .journal import database_of
from .models import Step
from .rules import StepState, owes_undo

#: The most rows of a record that are shown.
MOST = 500
NOTHING = mark_safe("")
#: State → the status of records whose colour it has.
COLOURS = {
    StepState.STARTED: "running",
    StepState.DONE: "completed",
    StepState.FAILED: "failed",
    StepState.UNDOING: "failed",
    StepState.UNDONE: "expired",
    StepState.SKIPPED: "free",
    StepState.BARRIER: "abandoned",
}


class StepsPanel:
    """The steps of a record in order, one table for each request that was sent with its key."""

    def section(
        self, request: HttpRequest, record_id: UUID, site: AdminSite, store: BaseStore
    ) -> SafeString:
        if not request.user.has_perm("idempotency_steps.view_step"):
            return NOTHING
        steps = (
            Step.objects.using(database_of(store))
            .filter(record=record_id)
            .defer("result", "arguments")
        )
        found = list(steps.order_by("pk")[: MOST + 1])
        rows = [row for row in found[:MOST] if row.state != StepState.ENDED]
        if not rows:
            return NOTHING
        cut = len(found) > MOST
        newest = newest_of(record_id, database_of(store)) if cut else found[-1]
        context = {
            "runs": list(timelines_of(rows)),
            "cut": cut,
            "undo": UNDO,
            "undo_url": self._undo_url(request, record_id, site)
            if newest and may_be_undone(newest)
            else "",
        }
        return render_to_string("admin/idempotency_steps/timeline.html", context, request)

    @staticmethod
    def _undo_url(request: HttpRequest, record_id: UUID, site: AdminSite) -> str:
        """Return the page that asks for confirmation; "": this user may not."""
        if not request.user.has_perm(UNDO.permission):
            return ""
        opts = IdempotencyRecord._meta
        return reverse(
            f"{site.name}:{opts.app_label}_{opts.model_name}_{UNDO.name}", args=[record_id]
        )

    def find(self, request: HttpRequest, term: str) -> list[UUID]:
        return []


class UndoVerb(Verb):
    """Undoes the steps of a record."""

    @property
    def permission(self) -> str:
        return "idempotency_steps.undo_step"

    def act(self, store: Any, record_id: UUID, *, audit: Audit) -> Intervention:
        """See `undo_by_hand()`.

        Raises `StepsNotUndone` if something is left for a person, or for a later try.

        If the database of the steps is away, raises `IdempotencyError`: the next try goes on.
        """
        ttl = seconds(setting("TTL"))
        try:
            undone = undo_by_hand(store, record_id, using=database_of(store), audit=audit, ttl=ttl)
        except DatabaseError as error:
            reason = {"error": type(error).__name__}
            raise IdempotencyError(
                gettext("The steps cannot be undone now: %(error)s. Try again later.") % reason
            ) from error
        if undone.failed or undone.doubtful:
            raise StepsNotUndone(left_by(undone))
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
        "The operation gives up: its steps that have an undo are undone in reverse, also "
        "one of which nobody knows whether "
        "it had its effect, and no step can follow. Retries get 409 operation-cancelled. "
        "First make sure that its client has "
        "not been given the result in another way. The undos run now, and may take a while."
    ),
    counted=ngettext_lazy("%d operation was undone.", "%d operations were undone."),
    logged=_("Undone. It was %(evidence)s, kept until %(expires)s. Reason: %(reason)s"),
    done="Undone",
    already_counted=ngettext_lazy(
        "%d operation has ended, or was undone before.",
        "%d operations have ended, or were undone before.",
    ),
)

PANELS.append(StepsPanel())
ADDED_VERBS[UNDO.name] = UNDO


def may_be_undone(newest: Step) -> bool:
    """Is something left of the operation of a record's newest row?"""
    closed = newest.state == StepState.BARRIER and newest.due_at is None
    return newest.state != StepState.ENDED and not closed


def timelines_of(rows: list[Step]) -> Iterator[list[dict[str, Any]]]:
    """Yield the lines of each run, the oldest run first.

    A corrected request under the same key is another run.
    """
    first = {row.run: row.pk for row in reversed(rows)}
    rows = sorted(rows, key=lambda row: (first[row.run], row.position))
    for _run, found in groupby(rows, key=lambda row: row.run):
        steps = list(found)
        given_up = steps[-1].state == StepState.BARRIER
        yield [line_of(step, given_up=given_up) for step in steps]


def line_of(step: Any, *, given_up: bool) -> dict[str, Any]:
    """Return a step as it is shown."""
    return {
        "step": step,
        "colour": COLOURS[step.state],
        "undo": step.undo.rpartition(".")[2],  # without its module
        "owed": given_up and owes_undo(step),
        # Nobody knows whether it had its effect, and it cannot be undone.
        "doubtful": given_up and step.state == StepState.STARTED and not step.undo,
    }
