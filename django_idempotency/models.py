"""The ORM store's table: one row per idempotency key."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from .core.records import Guarantee, Status, shortened


class InstantField(models.DateTimeField):  # type: ignore[type-arg]
    """A point in time that is UTC in Python and in the database, whatever USE_TZ and the alias's
    TIME_ZONE say.

    A naive local time repeats an hour each autumn; a deadline must not.
    """

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        value = value if prepared else self.get_prep_value(value)
        if (
            isinstance(value, datetime)
            and value.tzinfo is not None
            and not connection.features.supports_timezones
        ):
            value = value.astimezone(timezone.utc).replace(tzinfo=None)
        return connection.ops.adapt_datetimefield_value(value)

    def select_format(self, compiler: Any, sql: str, params: Any) -> tuple[str, Any]:
        """Select an instant in UTC where the driver would return it as the session's local time,
        without a zone.
        """
        if compiler.connection.features.supports_timezones and not settings.USE_TZ:
            sql = f"{sql} AT TIME ZONE 'UTC'"
        return sql, params

    def from_db_value(
        self, value: datetime | None, expression: Any, connection: Any
    ) -> datetime | None:
        if value is None:
            return None
        naive = not connection.features.supports_timezones
        return (
            value.replace(tzinfo=timezone.utc)
            if naive or value.tzinfo is None
            else value.astimezone(timezone.utc)
        )


class IdempotencyRecord(models.Model):
    """The record of one idempotency key. Only `stores.orm` writes it; all other code reads."""

    #: The first 16 bytes of SHA-256(scope ‖ 0 ‖ key): no collation, padding or truncation, no
    #: sequence.
    id = models.UUIDField(_("id"), primary_key=True, editable=False)
    scope = models.CharField(
        _("scope"), max_length=255, help_text=_("The principal that the key belongs to.")
    )
    key = models.CharField(_("key"), max_length=255)
    method = models.CharField(_("method"), max_length=16)
    path = models.CharField(_("path"), max_length=255)
    guarantee = models.CharField(
        _("guarantee"), max_length=8, choices=[(g.value, g.value) for g in Guarantee]
    )
    digest = models.BinaryField(_("request digest"), max_length=32)
    status = models.SmallIntegerField(
        _("status"),
        choices=[
            (Status.FREE.value, _("free")),
            (Status.RUNNING.value, _("running")),
            (Status.COMPLETED.value, _("completed")),
        ],
    )
    owner = models.UUIDField(_("owner token"))
    #: What `derive()` is bound to: the same from the key's first claim to its expiry, for every
    #: owner.
    operation = models.UUIDField(_("operation"))
    attempt = models.PositiveIntegerField(_("attempt"))
    lease_until = InstantField(_("leased until"))
    created_at = InstantField(_("created"))
    completed_at = InstantField(_("completed"), null=True)
    expires_at = InstantField(_("expires"))
    #: No purge deletes the row before this time. Set at the claim and never shortened, so
    #: completing or expiring a row moves no index entry. The only index besides the primary key.
    purge_at = InstantField(_("kept until"), db_index=True)
    secret_id = models.CharField(_("derive-secret id"), max_length=8)
    #: The id that the request came with; empty: none, so it goes by the owner token.
    request_id = models.CharField(_("request id"), max_length=128)
    response_status = models.SmallIntegerField(_("response status"), null=True)
    response_headers = models.TextField(_("response headers"))
    #: NULL: the body was not stored. Empty: the body was empty.
    response_body = models.BinaryField(_("response body"), null=True)

    class Meta:
        db_table = "django_idempotency_record"
        verbose_name = _("idempotency record")
        verbose_name_plural = _("idempotency records")
        default_permissions = ("view",)
        permissions = (
            ("view_response", _("Can see stored response bodies")),
            ("release_record", _("Can release idempotency keys")),
            ("expire_record", _("Can expire idempotency records")),
            ("erase_record", _("Can erase idempotency records")),
        )

    def __str__(self) -> str:
        """Return what the admin's log keeps for ever: a part of the key, and whose it is."""
        return f"{shortened(self.key)} ({self.scope})"


class RepeatCount(models.Model):
    """How often a key came again, since the row before it of the same record. Only `stores.orm`
    writes it.
    """

    record_id = models.UUIDField(_("record"), db_index=True)
    replays = models.PositiveIntegerField(_("replays"))
    mismatches = models.PositiveIntegerField(_("refused as another request"))
    last_seen = InstantField(_("last seen"))
    #: When the record is purged, and nothing needs the row any more.
    purge_at = InstantField(_("kept until"), db_index=True)

    class Meta:
        db_table = "django_idempotency_repeats"
        verbose_name = _("repeats")
        verbose_name_plural = _("repeats")
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.record_id}: {self.replays}, {self.mismatches}"
