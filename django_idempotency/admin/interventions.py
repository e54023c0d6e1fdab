"""Release, expire and erase: each with its own permission, confirmed, and written to the admin's
log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.admin import helpers
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from ..core.interventions import Intervention
from ..core.records import Record
from ..errors import IdempotencyError
from ..inspection import redaction
from ..inspection.interventions import Verb, evidence, intervene
from ..models import IdempotencyRecord
from .panels import rendered

#: Characters of a reason.
LONGEST_REASON = 500


def said(verb: Verb) -> dict[Intervention, tuple[int, Any]]:
    """Return the message about records with each outcome."""
    return {
        Intervention.DONE: (messages.SUCCESS, verb.counted),
        Intervention.BUSY: (
            messages.WARNING,
            ngettext_lazy(
                "%d record was refused: a request with its key is running, and holds it. "
                "Try again later.",
                "%d records were refused: requests with their keys are running, and hold "
                "them. Try again later.",
            ),
        ),
        Intervention.GONE: (
            messages.WARNING,
            ngettext_lazy("%d record no longer exists.", "%d records no longer exist."),
        ),
        Intervention.ALREADY: (messages.INFO, verb.already_counted),
    }


def may(of: Any, request: HttpRequest, verb: Verb) -> bool:
    """May this user see records and change them so? `of`: the records' model admin."""
    permitted: bool = of.has_view_permission(request) and request.user.has_perm(verb.permission)
    return permitted


def on_ticked(of: Any, request: HttpRequest, _: Any, *, verb: Verb) -> HttpResponse | None:
    """Ask for confirmation, then act on the ticked rows; not on the queryset, which may be the
    whole table.
    """
    ticked = request.POST.getlist(helpers.ACTION_CHECKBOX_NAME)
    rows = list(
        of.get_queryset(request).filter(pk__in=ticked).defer("response_headers", "response_body")
    )
    reason = given_reason(request)
    if request.POST.get("confirmed") != "yes" or not reason:
        return confirm(of, request, verb, rows, action=f"{verb.name}_records")
    change(of, request, verb, rows, reason)
    return None


def on_page(of: Any, request: HttpRequest, record_id: UUID, verb: Verb) -> HttpResponse:
    """Ask for confirmation for one record, or act on it (POST)."""
    if not may(of, request, verb):
        raise PermissionDenied
    row = of.get_object(request, str(record_id))
    if row is None:
        raise Http404
    reason = given_reason(request)
    if request.method != "POST" or not reason:
        return confirm(of, request, verb, [row])
    change(of, request, verb, [row], reason)
    return HttpResponseRedirect("../")


def given_reason(request: HttpRequest) -> str:
    """Return why somebody intervenes, on one line; "": they have not said."""
    return " ".join(request.POST.get("reason", "").split())[:LONGEST_REASON]


def confirm(
    of: Any, request: HttpRequest, verb: Verb, rows: Sequence[IdempotencyRecord], action: str = ""
) -> HttpResponse:
    """Show all that tells the records from others, and ask for a reason."""
    of.name_people(request, rows)
    return rendered(
        of,
        request,
        "confirm_intervention",
        title=verb.title,
        verb=verb,
        rows=[
            (
                row,
                redaction.text(row.path),
                of.state_and_guarantee(row),
                of.answer(row),
                of.created(row),
            )
            for row in rows
        ],
        heads=[_("Key"), _("Scope"), _("Request"), _("Status"), _("Response"), _("Created")],
        unreasoned=request.POST.get("confirmed") == "yes",
        longest_reason=LONGEST_REASON,
        action=action,
        checkbox=helpers.ACTION_CHECKBOX_NAME,
    )


def change(
    of: Any, request: HttpRequest, verb: Verb, rows: Sequence[IdempotencyRecord], reason: str
) -> None:
    """Act on each row in a short transaction of its own, with its entry in the log, and report the
    outcome.
    """
    user: Any = request.user
    alias = of.alias
    counted = Counter[Intervention]()
    for row in rows:
        act = partial(
            intervene,
            verb,
            of.get_store(),
            row.pk,
            note=partial(log, of, request, verb, row, reason),
        )
        try:
            outcome, _ = act(
                alias=alias, actor=f"{user._meta.label_lower}:{user.pk}", reason=reason
            )
        except IdempotencyError as error:
            of.message_user(request, f"{row}: {error}", messages.ERROR)
            break
        counted[outcome] += 1
    for outcome, (level, sentence) in said(verb).items():
        if count := counted[outcome]:
            of.message_user(request, sentence % count, level)


def log(  # noqa: PLR0917 - Django's own order
    of: Any, request: HttpRequest, verb: Verb, row: IdempotencyRecord, reason: str, record: Record
) -> None:
    """Write an entry of the admin's log: what the record was, and why it is changed."""
    noted = evidence(record, erased=verb.name == "erase")
    facts = {"evidence": noted, "expires": record.expires_at.isoformat(), "reason": reason}
    of.log_change(request, row, verb.logged % facts)
