"""The table of messages that wait for a relay.

A message is deleted once a broker has confirmed it.
"""

from __future__ import annotations

import base64
import json
from datetime import datetime, timezone
from typing import ClassVar, Final
from uuid import uuid4

from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.utils.translation import gettext_lazy as _

from ...models import InstantField
from ..at_rest.encryption import opened, sealing
from ..at_rest.sealed import CannotOpen

#: The `not_before` of a message that is set aside: no relay tries it before a person says so.
SET_ASIDE: Final = datetime(9999, 1, 1, tzinfo=timezone.utc)
#: The one header of a sealed message; its value holds payload and headers.
SEALED: Final = ":sealed"


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
        help_text=_(
            "Messages with the same key are published in order; those without a key in any order."
        ),
    )
    #: NULL is None, a valid payload.
    payload = models.JSONField(_("payload"), encoder=DjangoJSONEncoder, null=True)
    headers = models.JSONField(_("headers"), encoder=DjangoJSONEncoder, default=dict, blank=True)
    created_at = InstantField(_("created"))
    #: Noted before each attempt, so that one which kills its relay counts as well.
    attempts = models.PositiveIntegerField(_("failed attempts"), default=0)
    last_error = models.CharField(_("last error"), max_length=255, blank=True)
    not_before = InstantField(
        _("not before"), null=True, help_text=_("It failed, and is retried after this time.")
    )
    #: How many of its last attempts have begun and not ended: the relay works at one, or has died
    #: in it.
    unended = models.PositiveIntegerField(_("attempts without an end"), default=0, db_default=0)

    objects: ClassVar[models.Manager[Message]]

    class Meta:
        db_table = "django_idempotency_message"
        verbose_name = _("message")
        verbose_name_plural = _("messages")
        #: Find messages that have never failed, in order; those due again; and the failed ones of a
        #: key.
        indexes = (
            models.Index(fields=["not_before", "id"], name="idempotency_outbox_due"),
            models.Index(fields=["key", "not_before", "id"], name="idempotency_outbox_key"),
        )
        default_permissions = ("view",)
        permissions = (("retry_message", _("Can retry messages at once")),)

    def __str__(self) -> str:
        return f"{self.topic} {self.message_id}"

    @property
    def is_set_aside(self) -> bool:
        """Have relays died in its attempts until one gave it up?

        Then a person decides, and those of its key wait.
        """
        return self.not_before is not None and self.not_before >= SET_ASIDE

    def seal(self) -> None:
        """Seal payload and headers with ENCRYPTION_KEYS before they are written, if a key seals.

        Relays order by the rest.
        """
        ring = sealing()
        if ring is not None:
            text = json.dumps([self.payload, self.headers], cls=DjangoJSONEncoder)
            sealed = ring.seal(text.encode(), *self._place)
            self.payload = None
            self.headers = {SEALED: base64.b64encode(sealed).decode()}

    def open(self) -> None:
        """Give a message that was read its payload and headers, in memory.

        Raises `CannotOpen`, and changes nothing then.
        """
        if not isinstance(self.headers, dict) or SEALED not in self.headers:
            return
        try:
            text = opened(base64.b64decode(self.headers[SEALED], validate=True), *self._place)
            self.payload, self.headers = json.loads(text)
        except (ValueError, TypeError) as error:
            raise CannotOpen("it was changed") from error

    @property
    def _place(self) -> tuple[bytes, bytes]:
        return b"message", self.message_id.bytes
