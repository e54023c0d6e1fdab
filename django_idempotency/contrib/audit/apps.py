"""The app."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.translation import gettext_lazy as _

from ... import conf
from ...checks import TAG, named
from ...instrumentation.trail import trail
from ...runtime.wings import Erased, Extension, Purging


class AuditTrail(Extension):
    """The tables of the trail, one for all stores."""

    def purging(self, alias: str, store: Any) -> Iterable[Purging]:
        from .housekeeping import count_due, edge, purge  # not above: loads the models

        if (before := edge()) is None:
            return ()
        return (Purging(kind="audit row", purge=partial(purge, before), due=partial(count_due, before)),)

    def erase(self, options: Mapping[str, Any], *, scopes: frozenset[str], size: int, dry: bool) -> Iterator[Erased]:
        """Erase to whom events happened. That they happened stays."""
        if scopes:
            from .housekeeping import erase  # not above: loads the models

            yield Erased(kind="audit rows", erased=erase(scopes, size=size, dry=dry))

    def reseal(self, store: Any, *, size: int, dry: bool) -> Iterator[tuple[str, Counter[Any]]]:
        from .housekeeping import reseal  # not above: loads the models

        for batch in reseal(size=size, dry=dry):
            yield "audit rows", batch


class AuditConfig(AppConfig):
    """The audit trail. Optional: installed beside `django_idempotency`, and switched on by AUDIT."""

    name = "django_idempotency.contrib.audit"
    label = "idempotency_audit"
    verbose_name = _("Idempotency: audit")
    extension = AuditTrail()
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        checks.register(named("django_idempotency.contrib.audit.checks.check_audit"), TAG)
        attach()
        setting_changed.connect(_reattach)


def attach() -> None:
    """Attach the trail if AUDIT is set, and detach it otherwise."""
    trail.active = None
    with suppress(ImproperlyConfigured):  # an error of `manage.py check`
        if conf.get("AUDIT") is True:
            from .writing import DatabaseTrail  # not above: loads the models

            trail.active = DatabaseTrail()


def _reattach(*, setting: str, **_: Any) -> None:
    """Follow a change of settings (tests)."""
    if setting == conf.NAME:
        attach()
