"""The table of messages that wait for a relay. A message is there until a broker has confirmed it, and no longer."""

from __future__ import annotations

from typing import ClassVar
from uuid import uuid4

from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.utils.translation import gettext_lazy as _

from ..models import InstantField


class Message(models.Model):
    """A message on its way. `send()` writes it, a relay deletes it, a publisher reads it."""

    #: The order. Given when the row is written, and not when it is committed.
    id = models.BigAutoField(_("position"), primary_key=True)
    #: What a consumer tells a message by, however often it arrives.
    message_id = models.UUIDField(_("message id"), unique=True, default=uuid4, editable=False)
    topic = models.CharField(_("topic"), max_length=255)
    key = models.CharField(
        _("key"),
        max_length=255,
        blank=True,
        help_text=_("Messages of one key are published in their order; those without a key in any."),
    )
    #: NULL is None, which is a payload like any other.
    payload = models.JSONField(_("payload"), encoder=DjangoJSONEncoder, null=True)
    headers = models.JSONField(_("headers"), encoder=DjangoJSONEncoder, default=dict, blank=True)
    created_at = InstantField(_("created"))
    attempts = models.PositiveIntegerField(_("failed attempts"), default=0)
    last_error = models.CharField(_("last error"), max_length=255, blank=True)
    not_before = InstantField(_("not before"), null=True, help_text=_("It failed, and is tried again from then on."))

    objects: ClassVar[models.Manager[Message]]

    class Meta:
        db_table = "django_idempotency_message"
        verbose_name = _("message")
        verbose_name_plural = _("messages")
        #: Find what has never failed, in order, and what is due again; and what of a key has failed.
        indexes = (
            models.Index(fields=["not_before", "id"], name="idempotency_outbox_due"),
            models.Index(fields=["key", "not_before", "id"], name="idempotency_outbox_key"),
        )
        default_permissions = ("view",)
        permissions = (("retry_message", _("Can have messages tried again at once")),)

    def __str__(self) -> str:
        return f"{self.topic} {self.message_id}"
