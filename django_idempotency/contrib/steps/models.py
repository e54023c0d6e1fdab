"""The table of steps: the journal of each operation that has any."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _

from ...models import InstantField
from .rules import StepState


class Step(models.Model):
    """One step of one operation, or the barrier behind the last one of an operation that gave
    up.
    """

    #: Names the operation with its request: the same on every attempt, another one for a corrected
    #: request.
    run = models.UUIDField(_("run"), editable=False)
    #: Counts from 1.
    position = models.PositiveIntegerField(_("position"))
    #: Empty: the barrier.
    name = models.CharField(_("name"), max_length=100, blank=True)
    state = models.SmallIntegerField(
        _("state"),
        choices=[
            (StepState.STARTED.value, _("started")),
            (StepState.DONE.value, _("done")),
            (StepState.FAILED.value, _("failed")),
            (StepState.UNDOING.value, _("is being undone")),
            (StepState.UNDONE.value, _("undone")),
            (StepState.SKIPPED.value, _("had no effect")),
            (StepState.BARRIER.value, _("given up")),
            (StepState.ENDED.value, _("ended")),
        ],
    )
    #: The id of the record, and the alias of its store.
    record = models.UUIDField(_("record"), db_index=True, editable=False)
    #: The operation of the record: one that has expired since is another's.
    operation = models.UUIDField(_("operation"), editable=False)
    store = models.CharField(_("store"), max_length=100)
    #: The attempt that began it.
    attempt = models.PositiveIntegerField(_("attempt"))
    #: Dotted paths of functions: the step's own, its undo, and what is asked about one that broke
    #: off.
    function = models.CharField(_("function"), max_length=255, blank=True)
    undo = models.CharField(_("undo"), max_length=255, blank=True)
    ask = models.CharField(_("ask"), max_length=255, blank=True)
    #: The keys under which the step and its undo call others, if it has an undo.
    key = models.CharField(_("key"), max_length=64, blank=True)
    undo_key = models.CharField(_("key of the undo"), max_length=64, blank=True)
    #: The stored result or exception, sealed with ENCRYPTION_KEYS if there are any.
    result = models.BinaryField(_("result"), null=True)
    #: The arguments of the function whose first step it is, as `result` is; NULL: a view, or they
    #: cannot be stored.
    arguments = models.BinaryField(_("arguments"), null=True)
    #: Why it could not be undone, or how it failed: the class of the exception.
    error = models.CharField(_("error"), max_length=255, blank=True)
    created_at = InstantField(_("began"))
    ended_at = InstantField(_("ended"), null=True)
    #: On the first step, until its operation is known to have ended, and on a barrier, until all is
    #: undone: when `idempotency_resume operations` looks at it again.
    due_at = InstantField(_("due"), null=True)
    #: No purge deletes it before.
    purge_at = InstantField(_("kept until"))

    objects: ClassVar[models.Manager[Step]]

    class Meta:
        db_table = "django_idempotency_step"
        verbose_name = _("step")
        verbose_name_plural = _("steps")
        constraints = (
            models.UniqueConstraint(fields=["run", "position"], name="idempotency_step_once"),
        )
        indexes = (
            models.Index(fields=["due_at"], name="idempotency_step_due"),
            models.Index(fields=["purge_at"], name="idempotency_step_purge"),
        )
        default_permissions = ("view",)
        permissions = (("undo_step", _("Can undo the steps of an operation")),)

    def __str__(self) -> str:
        return self.name or str(StepState.BARRIER.name.lower())
