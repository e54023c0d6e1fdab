"""The table of messages that wait for a relay. A message is deleted once a broker has confirmed it."""

from __future__ import annotations

from typing import ClassVar
from uuid import uuid4

from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.utils.translation import gettext_lazy as _

from ...models import InstantField


class Message(models.Model):
    """A message on its way. `send()` writes it, a relay deletes it, a publisher reads it."""

    #: The order. Assigned when the row is written, not when it is committed.
    id = models.BigAutoField(_("position"), primary_key=True)
    #: Identifies the message to a consumer, however often it arrives.
    message_id = models.UUIDField(_("message id"), unique=True, default=uuid4, editable=False)
    topic = models.CharField(_("topic"), max_length=255)
    key = models.CharField(
        _("key"),
        max_length=255,
        blank=True,
        help_text=_("Messages with the same key are published in order; those without a key in any order."),
    )
    #: NULL is None, a valid payload.
    payload = models.JSONField(_("payload"), encoder=DjangoJSONEncoder, null=True)
    headers = models.JSONField(_("headers"), encoder=DjangoJSONEncoder, default=dict, blank=True)
    created_at = InstantField(_("created"))
    attempts = models.PositiveIntegerField(_("failed attempts"), default=0)
    last_error = models.CharField(_("last error"), max_length=255, blank=True)
    not_before = InstantField(_("not before"), null=True, help_text=_("It failed, and is retried after this time."))

    objects: ClassVar[models.Manager[Message]]

    class Meta:
        db_table = "django_idempotency_message"
        verbose_name = _("message")
        verbose_name_plural = _("messages")
        #: Find messages that have never failed, in order; those due again; and the failed ones of a key.
        indexes = (
            models.Index(fields=["not_before", "id"], name="idempotency_outbox_due"),
            models.Index(fields=["key", "not_before", "id"], name="idempotency_outbox_key"),
        )
        default_permissions = ("view",)
        permissions = (("retry_message", _("Can retry messages at once")),)

    def __str__(self) -> str:
        return f"{self.topic} {self.message_id}"
