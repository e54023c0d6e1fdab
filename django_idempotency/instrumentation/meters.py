"""Hands every figure to the meters of the setting METRICS. Without one, nothing is imported and nothing is measured.

Code that counts asks `meters.active` first, so that a project without metrics pays for one attribute.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from .. import conf

logger = logging.getLogger("django_idempotency")

#: Name in METRICS → the class, and our extra that installs what it needs.
SHIPPED: Mapping[str, tuple[str, str]] = {
    "prometheus": ("django_idempotency.contrib.metrics.prometheus.PrometheusMeter", "prometheus"),
    "opentelemetry": ("django_idempotency.contrib.metrics.opentelemetry.OpenTelemetryMeter", "opentelemetry"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a request or a call came in: the labels of its figures. Never a key, a user, or a path with an id in it."""

    #: "decorator", "middleware", "rest_framework", "ninja", or "function".
    entry_point: str
    #: The pattern of the URL, as Django's `resolver_match.route` has it, or the function's name; "": no URL matched.
    route: str
    #: The alias of the store; "": refused before its policy was asked.
    store: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a trace may show of one key: no key, no user."""

    #: See `short_id()`.
    key_hash: str
    attempt: int
    #: The trace context (W3C `traceparent`) of the request that did the work, on a replay; "": it is not known.
    first_trace: str = ""


class Meter:
    """Receives figures. Override what you export; every method may be called from any thread, inside a transaction.

    It must not use a database, block, or raise. An error is logged, and the request continues.
    """

    def request(self, source: Source, outcome: str, facts: Facts | None) -> None:
        """Count a request or a call, once. `outcome` is one of `outcomes.OUTCOMES`; `facts`: `None` without a record."""

    def waited(self, source: Source, seconds: float) -> None:
        """Record how long a duplicate waited for the first request."""

    def lease_lost(self, source: Source) -> None:
        """Count a record that its owner could not settle, or whose lease ended while the work ran."""

    def store_operation(self, store: str, operation: str, seconds: float) -> None:
        """Record how long a verb of a store took, also if it raised."""

    def published(self, outcome: str, lag: float) -> None:
        """Count a message of the outbox, "published" or "failed", and the seconds since it was sent."""

    def step(self, outcome: str) -> None:
        """Count a step of an operation: one of `outcomes.STEPS`. Its name is not a label: a project may have many."""

    def outgoing(self, provider: str, outcome: str) -> None:
        """Count a call to a provider, by its alias in PROVIDERS, when it ends: a `CallState`, or "replayed"."""

    def duplicate_found(self, model: str) -> None:
        """Count a suspect that `manage.py idempotency_suspects` found. `model` is a label, such as "payments.Charge"."""

    def audit_failed(self) -> None:
        """Count an event that could not be written to the audit trail."""

    def current_trace(self) -> str:
        """Return the trace context (W3C `traceparent`) of the running request; "": there is none."""
        return ""


class Meters:
    """The meters of the settings: a callable per figure, which no error leaves."""

    def __init__(self) -> None:
        #: Read at each request.
        self.active: tuple[Meter, ...] = ()
        #: Why there are none although METRICS is set; "": it is not, or there are.
        self.problem = ""

    def install(self) -> None:
        """Make the meters of METRICS. What cannot be made is logged, and is an error of `manage.py check`."""
        made, self.problem = list[Meter](), ""
        try:
            made.extend(meter(chosen) for chosen in wanted())
        except Exception as error:  # noqa: BLE001 - the constructor may be the project's
            self.problem = " ".join(str(error).split()) or type(error).__name__
            logger.error("Metrics are off: %s", self.problem)  # noqa: TRY400 - the message says what to do
        self.active = tuple(made)
        conf.recompile()  # a plan knows whether its store is measured

    def reload(self, *, setting: str, **_: Any) -> None:
        """Follow a change of settings (tests)."""
        if setting == conf.NAME:
            self.install()

    def request(self, source: Source, outcome: str, facts: Facts | None = None) -> None:
        self._each(lambda meter: meter.request(source, outcome, facts))

    def waited(self, source: Source, seconds: float) -> None:
        self._each(lambda meter: meter.waited(source, seconds))

    def lease_lost(self, source: Source) -> None:
        self._each(lambda meter: meter.lease_lost(source))

    def store_operation(self, store: str, operation: str, seconds: float) -> None:
        self._each(lambda meter: meter.store_operation(store, operation, seconds))

    def published(self, outcome: str, lag: float) -> None:
        self._each(lambda meter: meter.published(outcome, lag))

    def step(self, outcome: str) -> None:
        self._each(lambda meter: meter.step(outcome))

    def outgoing(self, provider: str, outcome: str) -> None:
        self._each(lambda meter: meter.outgoing(provider, outcome))

    def duplicate_found(self, model: str) -> None:
        self._each(lambda meter: meter.duplicate_found(model))

    def audit_failed(self) -> None:
        self._each(lambda meter: meter.audit_failed())

    def current_trace(self) -> str:
        """Return the trace context of the first meter that knows one."""
        for each in self.active:
            with suppress(Exception):
                if trace := each.current_trace():
                    return trace
        return ""

    def _each(self, tell: Callable[[Meter], None]) -> None:
        for each in self.active:
            try:
                tell(each)
            except Exception:
                with suppress(Exception):  # raised by a log filter
                    logger.exception("%s raised: a figure is missing.", type(each).__name__)


def wanted() -> Iterable[str]:
    """Return what METRICS names, as a sequence of texts. Raises `ImproperlyConfigured` for anything else."""
    chosen = conf.get("METRICS")
    if chosen is None:
        return ()
    names = [chosen] if isinstance(chosen, str) else chosen
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise ImproperlyConfigured(f"it is {type(chosen).__name__}, not text or a list of texts.")
    return names


WHAT_TO_TYPE = '"prometheus", "opentelemetry", the dotted path of a Meter, or a list of these'


def meter(chosen: str) -> Meter:
    """Return a new meter by its name or dotted path. Raises `ImproperlyConfigured` with what to do."""
    path, extra = SHIPPED.get(chosen, (chosen, ""))
    try:
        made = import_string(path)()
    except ImportError as error:
        hint = f"Type pip install 'django-idempotency[{extra}]'." if extra else f"Type {WHAT_TO_TYPE}."
        raise ImproperlyConfigured(f"{chosen!r} cannot be imported: {error}. {hint}") from error
    if not isinstance(made, Meter):
        raise ImproperlyConfigured(f"{chosen!r} is not a subclass of django_idempotency.instrumentation.meters.Meter.")
    return made


meters = Meters()
setting_changed.connect(meters.reload)
