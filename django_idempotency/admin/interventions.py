"""Release, expire and erase: each with its own permission, confirmed, and written to the admin's log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin import helpers
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from ..core.interventions import Intervention
from ..core.records import Record
from ..errors import IdempotencyError
from ..inspection import redaction
from ..inspection.evidence import evidence
from ..inspection.interventions import VERBS, Verb
from ..inspection.read_only import ReadOnlyAdmin
from ..instrumentation.trail import trail
from ..models import IdempotencyRecord
from ..stores.base import BaseStore
from .columns import Columns
from .listing import Records
from .panels import ADDED_VERBS

#: The messages about records that were not changed.
_UNCHANGED = {
    Intervention.BUSY: (
        messages.WARNING,
        ngettext_lazy(
            "%d record was refused: a request with its key is running, and holds it. Try again later.",
            "%d records were refused: requests with their keys are running, and hold them. Try again later.",
        ),
    ),
    Intervention.GONE: (
        messages.WARNING,
        ngettext_lazy("%d record no longer exists.", "%d records no longer exist."),
    ),
}


#: Characters of a reason.
LONGEST_REASON = 500


class Confirmed:
    """A row of the confirmation: all that tells it from others."""

    def __init__(self, row: IdempotencyRecord, state: Any, answer: Any, created: Any) -> None:
        self.row, self.state, self.answer, self.created = row, state, answer, created
        self.path = redaction.text(row.path)


def given_reason(request: HttpRequest) -> str:
    """Return why somebody intervenes, on one line; "": they have not said."""
    return " ".join(request.POST.get("reason", "").split())[:LONGEST_REASON]


class Interventions(Columns, ReadOnlyAdmin):
    """Adds *release*, *expire* and *erase* to a model admin, as actions and as pages of their own.

    Each asks for a reason. The admin's log keeps it, and what the record was: see `evidence()`.
    """

    actions = ("release_records", "expire_records", "erase_records")

    def get_store(self) -> BaseStore:
        raise NotImplementedError

    @property
    def verbs(self) -> dict[str, Verb]:
        """The changes by hand, with those of other apps."""
        return {**VERBS, **ADDED_VERBS}

    def name_people(self, request: HttpRequest, rows: Iterable[IdempotencyRecord]) -> None:
        """Set `person` on the rows whose scope names a user."""
        raise NotImplementedError

    def may(self, request: HttpRequest, verb: Verb) -> bool:
        """May this user see records and perform this intervention?"""
        return self.has_view_permission(request) and request.user.has_perm(verb.permission)

    def has_release_permission(self, request: HttpRequest) -> bool:
        return self.may(request, VERBS["release"])

    def has_expire_permission(self, request: HttpRequest) -> bool:
        return self.may(request, VERBS["expire"])

    def has_erase_permission(self, request: HttpRequest) -> bool:
        return self.may(request, VERBS["erase"])

    @admin.action(permissions=["release"], description=_("Release selected keys…"))
    def release_records(self, request: HttpRequest, queryset: Records) -> HttpResponse | None:
        return self._selected(request, VERBS["release"])

    @admin.action(permissions=["expire"], description=_("Expire selected records…"))
    def expire_records(self, request: HttpRequest, queryset: Records) -> HttpResponse | None:
        return self._selected(request, VERBS["expire"])

    @admin.action(permissions=["erase"], description=_("Erase selected records…"))
    def erase_records(self, request: HttpRequest, queryset: Records) -> HttpResponse | None:
        return self._selected(request, VERBS["erase"])

    def _selected(self, request: HttpRequest, verb: Verb) -> HttpResponse | None:
        """Ask for confirmation, then act on the ticked rows; not on the queryset, which may be the whole table."""
        ticked = request.POST.getlist(helpers.ACTION_CHECKBOX_NAME)
        rows = list(self.get_queryset(request).filter(pk__in=ticked).defer("response_headers", "response_body"))
        reason = given_reason(request)
        if request.POST.get("confirmed") != "yes" or not reason:
            return self._confirm(request, verb, rows, action=f"{verb.name}_records")
        self._intervene(request, verb, rows, reason)
        return None

    def intervention_view(self, request: HttpRequest, record_id: UUID, name: str) -> HttpResponse:
        """Ask for confirmation for one record, or act on it (POST)."""
        verb = self.verbs[name]
        if not self.may(request, verb):
            raise PermissionDenied
        row = self.get_object(request, str(record_id))
        if row is None:
            raise Http404
        reason = given_reason(request)
        if request.method != "POST" or not reason:
            return self._confirm(request, verb, [row])
        self._intervene(request, verb, [row], reason)
        return HttpResponseRedirect("../")

    def _confirm(
        self, request: HttpRequest, verb: Verb, rows: Sequence[IdempotencyRecord], action: str = ""
    ) -> HttpResponse:
        self.name_people(request, rows)
        context = {
            **self.admin_site.each_context(request),
            "title": verb.title,
            "verb": verb,
            "rows": [
                Confirmed(row, self.state_and_guarantee(row), self.answer(row), self.created(row)) for row in rows
            ],
            "heads": [_("Key"), _("Scope"), _("Request"), _("Status"), _("Response"), _("Created")],
            "unreasoned": request.POST.get("confirmed") == "yes",
            "longest_reason": LONGEST_REASON,
            "action": action,
            "checkbox": helpers.ACTION_CHECKBOX_NAME,
            "opts": self.opts,
            "media": self.media,
        }
        request.current_app = self.admin_site.name
        template = "admin/django_idempotency/idempotencyrecord/confirm_intervention.html"
        return TemplateResponse(request, template, context)

    def _intervene(self, request: HttpRequest, verb: Verb, rows: Sequence[IdempotencyRecord], reason: str) -> None:
        """Act on each row in a short transaction of its own, with its entry in the log, and report the outcome."""
        store, counted = self.get_store(), Counter[Intervention]()
        for row in rows:

            def audit(record: Record, row: IdempotencyRecord = row) -> None:
                noted = evidence(record, erased=verb.name == "erase")
                facts = {"evidence": noted, "expires": record.expires_at.isoformat(), "reason": reason}
                self.log_change(request, row, verb.logged % facts)
                user: Any = request.user
                actor = f"{user._meta.label_lower}:{user.pk}"
                trail.intervened(f"{verb.done.lower()}_by_hand", record, actor=actor, reason=reason)

            try:
                counted[verb.act(store, row.pk, audit=audit)] += 1
            except IdempotencyError as error:
                self.message_user(request, f"{row}: {error}", messages.ERROR)
                break
        if done := counted[Intervention.DONE]:
            self.message_user(request, verb.counted % done, messages.SUCCESS)
        unchanged = {**_UNCHANGED, Intervention.ALREADY: (messages.INFO, verb.already_counted)}
        for outcome, (level, sentence) in unchanged.items():
            if count := counted[outcome]:
                self.message_user(request, sentence % count, level)
