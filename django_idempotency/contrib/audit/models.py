"""The tables of the audit trail: what happened to a key, and which business ids belong to it."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

from django.db import models
from django.utils.translation import gettext_lazy as _

from ...errors import AppendOnly
from ...models import InstantField


class AppendOnlyQuerySet(models.QuerySet[Any]):
    """Rows that can be added and read."""

    def update(self, **_: Any) -> NoReturn:
        raise AppendOnly

    def delete(self) -> NoReturn:
        raise AppendOnly

    def bulk_update(self, *_: Any, **__: Any) -> NoReturn:
        raise AppendOnly


class AppendOnlyModel(models.Model):
    """A row that is written once. `maintenance` is for purging, erasing and sealing, and nothing
    else.
    """

    #: The columns that may name a person: empty while they are in `sealed`, or after they were
    #: erased.
    personal: ClassVar[tuple[str, ...]]

    objects = models.Manager.from_queryset(AppendOnlyQuerySet)()
    maintenance: ClassVar[models.Manager[Any]] = models.Manager()

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Write a new row. Raises `AppendOnly` for one that was written or read."""
        if not self._state.adding:
            raise AppendOnly
        super().save(*args, **{**kwargs, "force_insert": True})

    def delete(self, *_: Any, **__: Any) -> NoReturn:
        raise AppendOnly

    def place(self) -> tuple[bytes, ...]:
        """Return what binds a sealed value to its row."""
        raise NotImplementedError


class AuditEvent(AppendOnlyModel):
    """One event of a key. It never holds a body or a response."""

    #: The order in which they were written.
    id = models.BigAutoField(_("position"), primary_key=True)
    #: The id of the record, which follows from scope and key: also after the record was deleted.
    record = models.UUIDField(_("record"))
    scope = models.CharField(_("scope"), max_length=255)
    key = models.CharField(_("key"), max_length=255)
    at = InstantField(_("time"))
    event = models.CharField(_("event"), max_length=32)
    #: 0: the work of this request did not run.
    attempt = models.PositiveIntegerField(_("attempt"), default=0)
    #: The status of the response, how a function's call ended, or the class of the error; empty:
    #: there is none yet.
    outcome = models.CharField(_("outcome"), max_length=64, blank=True)
    #: Method and route, or the function's name. A route has no ids in it.
    request = models.CharField(_("request"), max_length=255, blank=True)
    #: The beginning of a hash of the owner token: it tells owners apart.
    owner = models.CharField(_("owner"), max_length=12, blank=True)
    actor = models.CharField(_("actor"), max_length=255, blank=True)
    request_id = models.CharField(_("request id"), max_length=128, blank=True)
    reason = models.CharField(_("reason"), max_length=500, blank=True)
    #: The three above, sealed with ENCRYPTION_KEYS.
    sealed = models.BinaryField(_("sealed"), null=True)

    personal = ("actor", "request_id", "reason")

    class Meta:
        db_table = "django_idempotency_audit_event"
        verbose_name = _("audit event")
        verbose_name_plural = _("audit events")
        default_permissions = ("view",)
        #: The events of a record in order; and what a purge deletes.
        indexes = (
            models.Index(fields=["record", "id"], name="idempotency_audit_timeline"),
            models.Index(fields=["at"], name="idempotency_audit_purge"),
        )

    def __str__(self) -> str:
        return f"{self.event} {self.at:%Y-%m-%d %H:%M:%S}"

    def place(self) -> tuple[bytes, ...]:
        return (
            b"audit event",
            self.record.bytes,
            self.event.encode(),
            b"%d" % round(self.at.timestamp() * 1e6),
        )


class Reference(AppendOnlyModel):
    """A business id that a run of a key has named: `request.idempotency.refer("payment",
    charge.pk)`.
    """

    id = models.BigAutoField(_("position"), primary_key=True)
    record = models.UUIDField(_("record"))
    scope = models.CharField(_("scope"), max_length=255)
    key = models.CharField(_("key"), max_length=255)
    #: One life of the key, from its first claim to its expiry.
    operation = models.UUIDField(_("operation"))
    kind = models.CharField(_("kind"), max_length=64)
    #: The value's hash, a keyed one if the value is sealed: by which it is found, on every
    #: collation.
    value_hash = models.UUIDField(_("hash of the value"))
    value = models.CharField(_("value"), max_length=255, blank=True)
    sealed = models.BinaryField(_("sealed"), null=True)
    at = InstantField(_("time"))

    personal = ("value",)

    class Meta:
        db_table = "django_idempotency_audit_reference"
        verbose_name = _("reference")
        verbose_name_plural = _("references")
        default_permissions = ("view",)
        #: The references of a record, each once; the records of a reference; and what a purge
        #: deletes.
        constraints = (
            models.UniqueConstraint(
                fields=["record", "operation", "value_hash", "kind"],
                name="idempotency_audit_ref_once",
            ),
        )
        indexes = (
            models.Index(fields=["value_hash", "kind"], name="idempotency_audit_reference"),
            models.Index(fields=["at"], name="idempotency_audit_ref_purge"),
        )

    def __str__(self) -> str:
        return f"{self.kind}:{self.value}"

    def place(self) -> tuple[bytes, ...]:
        return b"audit reference", self.record.bytes, self.operation.bytes, self.kind.encode()
