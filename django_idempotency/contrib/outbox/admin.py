"""The messages that wait for a relay, and why.

Read-only, except that an operator may retry messages at once.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timesince import timesince
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from ...inspection import redaction
from ...inspection.read_only import ReadOnlyAdmin
from ...stores.base import utcnow
from ..at_rest.columns import batches
from ..at_rest.sealed import CannotOpen
from .models import Message

Messages = QuerySet[Message]

#: Messages that are retried in one statement: after an outage, every waiting message may be ticked.
TOGETHER = 1000


@admin.register(Message)
class MessageAdmin(ReadOnlyAdmin):
    list_display = ("topic", "key", "age", "state", "attempts", "last_error", "retried")
    fields = (
        "message_id",
        "topic",
        "key",
        "created_at",
        "masked_headers",
        "masked_payload",
        "state",
        "attempts",
        "unended",
        "last_error",
        "retried",
    )
    readonly_fields = ("masked_headers", "masked_payload", "state", "retried")
    ordering = ("pk",)
    actions = ("try_again",)

    def get_queryset(self, request: HttpRequest) -> Messages:
        """Leave out large fields, which the list does not show."""
        return super().get_queryset(request).defer("payload", "headers")

    def has_retry_permission(self, request: HttpRequest) -> bool:
        permission = f"{self.opts.app_label}.retry_message"
        return self.has_view_permission(request) and request.user.has_perm(permission)

    @admin.display(description=_("age"), ordering="pk")
    def age(self, message: Message) -> str:
        return timesince(message.created_at)

    @admin.display(description=_("state"))
    def state(self, message: Message) -> str:
        """Say what becomes of a message. One that is set aside waits for a person."""
        if message.is_set_aside:
            return gettext("set aside")
        if message.unended:
            return gettext("an attempt has begun")
        return gettext("failed") if message.attempts else gettext("waits")

    @admin.display(description=_("not before"), ordering="not_before")
    def retried(self, message: Message) -> datetime | None:
        return None if message.is_set_aside else message.not_before

    @admin.display(description=_("headers"))
    def masked_headers(self, message: Message) -> SafeString | str:
        return shown(message, "headers")

    @admin.display(description=_("payload"))
    def masked_payload(self, message: Message) -> SafeString | str:
        return shown(message, "payload")

    @admin.action(permissions=["retry"], description=_("Try again now"))
    def try_again(self, request: HttpRequest, queryset: Messages) -> None:
        """End the back-off of the ticked messages, and of the first message of their key, which
        they wait for.
        """
        count = ticked = 0
        for some in batches(queryset.only("pk", "key"), TOGETHER):
            waiting = Q(pk__in=[each.pk for each in some]) | Q(
                key__in={each.key for each in some if each.key}
            )
            failed = self.get_queryset(request).filter(waiting, not_before__gt=utcnow())
            # Not NULL: a relay looks for due retries among messages that have failed. One that was
            # set aside begins anew.
            count += failed.update(not_before=utcnow(), unended=0)
            ticked += len(some)
        self._log(request, queryset, ticked)
        self.message_user(
            request,
            ngettext("%d message will be retried now.", "%d messages will be retried now.", count)
            % count,
        )

    def _log(self, request: HttpRequest, queryset: Messages, ticked: int) -> None:
        """Write the ticked messages to the admin's log: each, or only their number if there are too
        many to read.
        """
        user: Any = request.user
        if ticked <= TOGETHER:
            LogEntry.objects.log_actions(user.pk, queryset, CHANGE, "Tried again.")
            return
        LogEntry.objects.create(
            user_id=user.pk,
            content_type=ContentType.objects.get_for_model(Message),
            object_repr=f"{ticked:,} messages",
            action_flag=CHANGE,
            change_message="Tried again.",
        )


def shown(message: Message, name: str) -> SafeString | str:
    """Show a field of a message, opened if it is sealed, with its secrets masked."""
    try:
        message.open()
    except CannotOpen:
        return gettext("Sealed, and no key of ENCRYPTION_KEYS opens it.")
    # As a stored response is shown.
    masked = redaction.json_text(json.dumps(getattr(message, name), cls=DjangoJSONEncoder))
    return format_html("<pre>{}</pre>", masked or "")
