"""The field."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.core import checks
from django.db import models

from .running import business_key


class IdempotencyKeyField(models.UUIDField):  # type: ignore[type-arg]  # not generic when it runs
    """The key of the request, call or step that inserts the row: filled by itself, `None` for what
    no key guards.

    UNIQUE, so one key makes one row. A work that makes several rows of a model says `unique=False`,
    and names in a `UniqueConstraint` what tells them apart: `fields=["idempotency_key", "line"]`. A
    value that the row has is kept.
    """

    description = "The idempotency key of the request that made the row"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"null": True, "editable": False, "unique": True, **kwargs})

    def deconstruct(self) -> Any:
        """Return how a migration makes it, with what differs from the defaults here."""
        name, path, args, kwargs = super().deconstruct()
        for default in ("null", "editable"):
            kwargs.pop(default, None)
        if not self.unique:
            kwargs["unique"] = False
        else:
            kwargs.pop("unique", None)
        return name, path, args, kwargs

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:
        """Fill it, in save(), `objects.create()` and `bulk_create()`."""
        if add and getattr(model_instance, self.attname) is None:
            setattr(model_instance, self.attname, business_key())
        return super().pre_save(model_instance, add)

    def check(self, **kwargs: Any) -> list[checks.CheckMessage]:
        """Say what would leave it empty."""
        found: list[checks.CheckMessage] = list(super().check(**kwargs))
        if not apps.is_installed("django_idempotency.contrib.business_key"):
            found.append(
                checks.Error(
                    "The app that fills this field is not installed, so it would stay empty.",
                    hint='Add "django_idempotency.contrib.business_key" to INSTALLED_APPS.',
                    obj=self,
                    id="idempotency_business_key.E001",
                )
            )
        return found
