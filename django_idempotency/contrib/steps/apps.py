"""The app."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.utils.translation import gettext_lazy as _

from ...checks import TAG, named
from ...runtime.handle import OperationHandle
from ...runtime.wings import Extension, Purging


class StepsOfRecords(Extension):
    """The table of steps, in the database that has the store's records."""

    def handle(self, handle: type[OperationHandle]) -> type[OperationHandle]:
        from .handle import StepsCourse, StepsHandle  # not above: a worker without steps needs none of it

        own = {"__doc__": handle.__doc__, "__module__": handle.__module__, "_course": StepsCourse}
        return type(handle.__name__, (StepsHandle, handle), own)

    def purging(self, alias: str, store: Any) -> Iterable[Purging]:
        from .housekeeping import count_due, purge, table_of  # not above: loads the model

        if (using := table_of(store)) is None:
            return ()
        return (Purging(kind="step", purge=partial(purge, using), due=partial(count_due, using)),)

    def erase_record(self, store: Any, record: Any) -> None:
        from .housekeeping import erase, table_of  # not above: loads the model

        if (using := table_of(store)) is not None:
            erase(using, record.id)

    def reseal(self, store: Any, *, size: int, dry: bool) -> Iterator[tuple[str, Counter[Any]]]:
        from .housekeeping import reseal, table_of  # not above: loads the model

        if (using := table_of(store)) is not None:
            for batch in reseal(using, size=size, dry=dry):
                yield "values of steps", batch


class StepsConfig(AppConfig):
    """Steps. Optional: installed beside `django_idempotency`, it adds a table and a command."""

    name = "django_idempotency.contrib.steps"
    label = "idempotency_steps"
    verbose_name = _("Idempotency: steps")
    extension = StepsOfRecords()
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        checks.register(named("django_idempotency.contrib.steps.checks.check_steps"), TAG)
