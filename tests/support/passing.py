"""Time that passes without anybody waiting, and hosts whose clocks are wrong."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import Any
from unittest import mock

from django_idempotency.contrib.client.models import OutgoingCall
from django_idempotency.contrib.steps.models import Step
from django_idempotency.models import IdempotencyRecord, InstantField


def let_pass(passed: timedelta) -> None:
    """Let time pass for every row: records, steps and outgoing calls move into the past
    together.
    """
    models: list[Any] = [IdempotencyRecord, Step, OutgoingCall]
    for model in models:
        names = [
            field.attname
            for field in model._meta.concrete_fields
            if isinstance(field, InstantField)
        ]
        for row in model.objects.only("pk", *names):
            moments = {
                name: moment - passed
                for name in names
                if (moment := getattr(row, name)) is not None
            }
            model.objects.filter(pk=row.pk).update(**moments)


@contextmanager
def host_off_by(hours: int) -> Iterator[None]:
    """Let the clock of this host be wrong, and that of the database right."""

    def now(*_: Any, **__: Any) -> datetime:
        return datetime.now(timezone.utc) + timedelta(hours=hours)

    with mock.patch("django.utils.timezone.now", now):
        ours = [
            module for name, module in sys.modules.items() if name.startswith("django_idempotency.")
        ]
        patched = [
            mock.patch.object(module, "utcnow", now) for module in ours if hasattr(module, "utcnow")
        ]
        for each in patched:
            each.start()
        try:
            yield
        finally:
            for each in patched:
                each.stop()
