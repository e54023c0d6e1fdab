"""Outgoing calls, those that wait for a person first.

Read-only, except that a person decides about them.
"""

from __future__ import annotations

import logging
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ActionForm
from django.contrib.admin.models import CHANGE, LogEntry
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from ...api import setting
from ...inspection.read_only import ReadOnlyAdmin
from .ledger import id_of
from .models import OutgoingCall
from .rules import CallState

logger = logging.getLogger("django_idempotency")

Calls = QuerySet[OutgoingCall]
#: What a person may decide about.
UNDECIDED = (CallState.HELD.value, CallState.UNKNOWN.value)
#: The shortest reason (characters) that says something.
SHORTEST = 3


class DecisionForm(ActionForm):
    """The actions, and why."""

    reason = forms.CharField(label=_("Reason"), max_length=200, required=False)


class ProviderFilter(admin.SimpleListFilter):
    """The configured providers: to ask the table for its own would read all of it."""

    title = _("provider")
    parameter_name = "provider"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(alias, alias) for alias in setting("PROVIDERS")]

    def queryset(self, request: HttpRequest, queryset: Calls) -> Calls:
        return queryset if self.value() is None else queryset.filter(provider=self.value())


@admin.register(OutgoingCall)
class OutgoingCallAdmin(ReadOnlyAdmin):
    list_display = (
        "name",
        "provider",
        "state",
        "attempts",
        "first_sent",
        "last_sent",
        "response_status",
    )
    list_filter = ("state", ProviderFilter)
    fields: ClassVar[tuple[str, ...]] = (
        "name",
        "provider",
        "key",
        "method",
        "url",
        "state",
        "attempts",
        "first_sent",
        "last_sent",
        "response_status",
        "reference",
    )
    #: As the index: those that are held come first.
    ordering = ("state", "last_sent")
    search_fields = ("name",)
    search_help_text = _("The whole name")
    actions = ("was_carried_out", "was_not_carried_out")
    action_form = DecisionForm
    lookups = ("state__exact", "provider")

    def get_queryset(self, request: HttpRequest) -> Calls:
        """Leave out what is not shown: it may be large, and hold what only the caller may see."""
        return super().get_queryset(request).defer("request", "response", "digest")

    def get_search_results(
        self, request: HttpRequest, queryset: Calls, search_term: str
    ) -> tuple[Calls, bool]:
        """Find a name by its primary key."""
        if not search_term:
            return queryset, False
        return queryset.filter(
            pk__in=[id_of(alias, search_term) for alias in setting("PROVIDERS")]
        ), False

    def has_decide_permission(self, request: HttpRequest) -> bool:
        permission = f"{self.opts.app_label}.decide_outgoingcall"
        return self.has_view_permission(request) and request.user.has_perm(permission)

    @admin.action(permissions=["decide"], description=_("It was carried out"))
    def was_carried_out(self, request: HttpRequest, queryset: Calls) -> None:
        """A later call under the name raises `CallResponseNotStored`, and sends nothing."""
        self._decide(request, queryset, CallState.SUCCEEDED)

    @admin.action(permissions=["decide"], description=_("It was not carried out"))
    def was_not_carried_out(self, request: HttpRequest, queryset: Calls) -> None:
        """A later call under the name is sent, with another key."""
        self._decide(request, queryset, CallState.VOID)

    def _decide(self, request: HttpRequest, queryset: Calls, state: CallState) -> None:
        reason = request.POST.get("reason", "").strip()
        if len(reason) < SHORTEST:
            self.message_user(
                request, gettext("Type a reason: what the provider says."), messages.ERROR
            )
            return
        decided = [call for call in queryset if self._decided(call, state)]
        for call in decided:
            self._log(request, call, state, reason)
        count = len(decided)
        self.message_user(
            request,
            ngettext("%d call was decided.", "%d calls were decided.", count) % count,
            messages.SUCCESS,
        )
        if left := queryset.count() - count:
            text = ngettext(
                "%d call was left: it is running, or has ended.",
                "%d calls were left: they are running, or have ended.",
                left,
            )
            self.message_user(request, text % left, messages.WARNING)

    def _decided(self, call: OutgoingCall, state: CallState) -> bool:
        """Write a decision, unless the call has moved on since it was shown."""
        seen = OutgoingCall.objects.filter(
            pk=call.pk, key=call.key, attempts=call.attempts, state__in=UNDECIDED
        )
        return bool(seen.update(state=state.value, request=None))

    def _log(self, request: HttpRequest, call: OutgoingCall, state: CallState, reason: str) -> None:
        user: Any = request.user
        LogEntry.objects.log_actions(
            user.pk,
            OutgoingCall.objects.filter(pk=call.pk),
            CHANGE,
            f"{state.value}: {reason}",
            single_object=True,
        )
        facts = {
            "event": "decided_call",
            "user": str(user),
            "provider": call.provider,
            "state": state.value,
        }
        said = "Decided by %(user)s: a call to %(provider)s is %(state)s."
        logger.warning(said, facts, extra={"idempotency": facts})
