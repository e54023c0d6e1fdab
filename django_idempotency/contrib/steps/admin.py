"""The steps of a record in Django's admin: a section of the record's page. No result and no argument is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any
from uuid import UUID

from django.contrib.admin import AdminSite
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString, mark_safe

from ...admin.panels import ADDED_VERBS, PANELS
from ...core.steps import StepRow, StepState, owes_undo
from ...models import IdempotencyRecord
from ...stores.base import BaseStore
from .intervening import newest_of
from .journal import database_of
from .models import Step
from .verbs import UNDO

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of the timeline."""

    position: int
    #: "": the barrier.
    name: str
    state: str
    colour: str
    attempt: int
    began: datetime
    ended: datetime | None
    #: The undo's name without its module; "": it has none.
    undo: str
    #: Has the operation given up, and is this step not undone yet?
    owed: bool
    #: Has the operation given up, and does nobody know whether this step had its effect, and cannot it be undone?
    doubtful: bool
    error: str


class StepsPanel:
    """The steps of a record in order, one table for each request that was sent with its key."""

    def section(self, request: HttpRequest, record_id: UUID, site: AdminSite, store: BaseStore) -> SafeString:
        if not request.user.has_perm("idempotency_steps.view_step"):
            return NOTHING
        steps = Step.objects.using(database_of(store)).filter(record=record_id).defer("result", "arguments")
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
            "undo_url": self._undo_url(request, record_id, site) if newest and may_be_undone(newest) else "",
        }
        return render_to_string("admin/idempotency_steps/timeline.html", context, request)

    @staticmethod
    def _undo_url(request: HttpRequest, record_id: UUID, site: AdminSite) -> str:
        """Return the page that asks for confirmation; "": this user may not."""
        if not request.user.has_perm(UNDO.permission):
            return ""
        opts = IdempotencyRecord._meta
        return reverse(f"{site.name}:{opts.app_label}_{opts.model_name}_{UNDO.name}", args=[record_id])

    def find(self, request: HttpRequest, term: str) -> list[UUID]:
        return []


PANELS.append(StepsPanel())
ADDED_VERBS[UNDO.name] = UNDO


def may_be_undone(newest: Step) -> bool:
    """Is something left of the operation of a record's newest row?"""
    closed = newest.state == StepState.BARRIER and newest.due_at is None
    return newest.state != StepState.ENDED and not closed


def timelines_of(rows: list[Step]) -> Iterator[list[Line]]:
    """Yield the lines of each run, the oldest run first. A corrected request under the same key is another run."""
    first = {row.run: row.pk for row in reversed(rows)}
    rows = sorted(rows, key=lambda row: (first[row.run], row.position))
    for _, run in groupby(rows, key=lambda row: row.run):
        steps = list(run)
        given_up = steps[-1].state == StepState.BARRIER
        yield [line_of(step, given_up=given_up) for step in steps]


def line_of(step: Any, *, given_up: bool) -> Line:
    """Return a step as it is shown."""
    state = StepState(step.state)
    return Line(
        position=step.position,
        name=step.name,
        state=step.get_state_display(),
        colour=COLOURS[state],
        attempt=step.attempt,
        began=step.created_at,
        ended=step.ended_at,
        undo=step.undo.rpartition(".")[2],
        owed=given_up
        and owes_undo(
            StepRow(position=step.position, name=step.name, state=state, attempt=step.attempt, undo=step.undo)
        ),
        doubtful=given_up and state is StepState.STARTED and not step.undo,
        error=step.error,
    )
