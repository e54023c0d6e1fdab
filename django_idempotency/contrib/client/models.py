"""The table of calls to providers: one row per name, written before the first byte is sent."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _

from ...models import InstantField
from .rules import CallState

#: The longest provider and the longest name (characters).
LONGEST = 255


class OutgoingCall(models.Model):
    """One logical call. A transport writes it, and a person decides about one that is held."""

    #: The first 16 bytes of SHA-256(provider ‖ 0 ‖ name): no collation, padding or truncation.
    id = models.UUIDField(_("id"), primary_key=True, editable=False)
    provider = models.CharField(_("provider"), max_length=LONGEST)
    name = models.CharField(_("name"), max_length=LONGEST)
    key = models.CharField(_("key"), max_length=LONGEST)
    #: `RunningStep.operation`, of the step that made it; empty: no step did. Only that step's next
    #: attempt sends it again.
    operation = models.CharField(_("operation of its step"), max_length=40, blank=True)
    method = models.CharField(_("method"), max_length=16)
    url = models.TextField(_("URL"), help_text=_("Without its query."))
    digest = models.BinaryField(_("request digest"), max_length=32)
    state = models.CharField(
        _("state"),
        max_length=10,
        choices=[
            (CallState.OPEN.value, _("open")),
            (CallState.SUCCEEDED.value, _("succeeded")),
            (CallState.REFUSED.value, _("refused")),
            (CallState.VOID.value, _("nothing was carried out")),
            (CallState.UNKNOWN.value, _("unknown")),
            (CallState.HELD.value, _("a person decides")),
            (CallState.GIVEN_UP.value, _("given up")),
        ],
    )
    attempts = models.PositiveIntegerField(_("attempts"))
    first_sent = InstantField(_("first sent"))
    last_sent = InstantField(_("last sent"))
    #: What it is resumed with, without credentials. NULL: it has ended, or its provider has no
    #: CLIENT.
    request = models.BinaryField(_("request"), null=True)
    response_status = models.SmallIntegerField(_("response status"), null=True)
    #: NULL: it was not stored.
    response = models.BinaryField(_("response"), null=True)
    #: What the provider calls the request that did the work.
    reference = models.CharField(_("provider's request id"), max_length=LONGEST)

    objects: ClassVar[models.Manager[OutgoingCall]]

    class Meta:
        db_table = "django_idempotency_outgoing_call"
        verbose_name = _("outgoing call")
        verbose_name_plural = _("outgoing calls")
        #: Find calls that nobody finishes, and those that ended long ago.
        indexes = (models.Index(fields=["state", "last_sent"], name="idempotency_client_due"),)
        default_permissions = ("view",)
        permissions = (("decide_outgoingcall", _("Can decide about outgoing calls")),)

    def __str__(self) -> str:
        return f"{self.name} ({self.provider})"
