"""Which meters METRICS names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from ...instrumentation.meters import Meter

#: Name in METRICS → the class, and our extra that installs what it needs.
SHIPPED: Mapping[str, tuple[str, str]] = {
    "prometheus": ("django_idempotency.contrib.metrics.prometheus.PrometheusMeter", "prometheus"),
    "opentelemetry": (
        "django_idempotency.contrib.metrics.opentelemetry.OpenTelemetryMeter",
        "opentelemetry",
    ),
}


def meters_of(chosen: Any) -> list[Meter]:
    """Return new meters by name or dotted path, of one or of a list.

    Raises `ImproperlyConfigured` with what to do.
    """
    names = [chosen] if isinstance(chosen, str) else chosen
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise ImproperlyConfigured(f"it is {type(chosen).__name__}, not text or a list of texts.")
    return [_meter(name) for name in names]


def _meter(chosen: str) -> Meter:
    path, extra = SHIPPED.get(chosen, (chosen, ""))
    try:
        made = import_string(path)()
    except ImportError as error:
        others = (
            'Type "prometheus", "opentelemetry", the dotted path of a Meter, or a list of these.'
        )
        hint = f"Type pip install 'django-idempotency[{extra}]'." if extra else others
        raise ImproperlyConfigured(f"{chosen!r} cannot be imported: {error}. {hint}") from error
    if not isinstance(made, Meter):
        raise ImproperlyConfigured(
            f"{chosen!r} is not a subclass of django_idempotency.instrumentation.meters.Meter."
        )
    return made
