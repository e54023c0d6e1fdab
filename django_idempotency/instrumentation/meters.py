"""Hands every figure to the meters of the setting METRICS.

Without one, nothing is imported and nothing is measured.

A figure is a `Metric`, declared where it is recorded. On the way of a request `meters.active` is
asked first, so that a project without metrics pays for one attribute.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from .. import conf

logger = logging.getLogger("django_idempotency")


class Source(NamedTuple):
    """Where a request or a call came in: the labels of its figures. Never a key, a user, or a path
    with an id in it.
    """

    #: "decorator", "middleware", "rest_framework", "ninja", or "function".
    entry_point: str
    #: The pattern of the URL, as Django's `resolver_match.route` has it, or the function's name;
    #: "": no URL matched.
    route: str
    #: The alias of the store; "": refused before its policy was asked.
    store: str


class Facts(NamedTuple):
    """What a trace may show of one key: no key, no user."""

    #: See `short_id()`.
    key_hash: str
    attempt: int
    #: The trace context (W3C `traceparent`) of the request that did the work, on a replay; "": it
    #: is not known.
    first_trace: str = ""


@dataclass(frozen=True, slots=True)
class Metric:
    """A counter, or a histogram if it has buckets. Declare it once, where it is recorded: each
    meter exports it by this.

    No label has a key, a user, or more values than the project has routes.
    """

    #: Behind "django_idempotency.", with dots, and without the unit: "outbox.messages".
    name: str
    about: str
    labels: tuple[str, ...] = ()
    #: As OpenTelemetry writes it: "s", "{request}".
    unit: str = ""
    buckets: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        METRICS.append(self)
        meters.declare(self)

    def record(self, value: float = 1, /, **labels: str) -> None:
        """Add to the counter, or observe a value, at each meter. Does nothing without one."""
        meters.each(lambda meter: meter.record(self, value, labels))


#: All that were declared: those of an optional app, once its modules are loaded.
METRICS: list[Metric] = []


class Meter:
    """Receives figures. Override what you export; every method may be called from any thread,
    inside a transaction.

    It must not use a database, block, or raise. An error is logged, and the request continues.
    """

    def declare(self, metric: Metric) -> None:
        """Prepare a metric, so that it is exported before it is recorded."""

    def record(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        """Add `value` to a counter, or observe it in a histogram."""

    def request(self, source: Source, outcome: str, facts: Facts | None) -> None:
        """Describe a request or a call, for a trace; it is also recorded as `REQUESTS`.

        Called once for each.

        `outcome` is one of `outcomes.OUTCOMES`; `facts`: `None` without a record.
        """

    def current_trace(self) -> str:
        """Return the trace context (W3C `traceparent`) of the running request; "": there is
        none.
        """
        return ""


class Meters:
    """The meters of the settings. No error leaves one."""

    def __init__(self) -> None:
        #: Read at each request.
        self.active: tuple[Meter, ...] = ()
        #: Why there are none although METRICS is set; "": it is not, or there are.
        self.problem = ""

    def install(self) -> None:
        """Make the meters of METRICS.

        What cannot be made is logged, and is an error of `manage.py check`.
        """
        made = list[Meter]()
        self.problem = ""
        try:
            chosen = conf.get("METRICS")
            if chosen is not None:
                made.extend(_meters_of(chosen))
        except Exception as error:  # noqa: BLE001 - the constructor may be the project's
            self.problem = " ".join(str(error).split()) or type(error).__name__
            # The message says what to do.
            logger.error("Metrics are off: %s", self.problem)  # noqa: TRY400
        self.active = tuple(made)
        for metric in METRICS:
            self.declare(metric)
        conf.recompile()  # a plan knows whether its store is measured

    def reload(self, *, setting: str, **_: Any) -> None:
        """Follow a change of settings (tests)."""
        if setting == conf.NAME:
            self.install()

    def declare(self, metric: Metric) -> None:
        self.each(lambda meter: meter.declare(metric))

    def request(self, source: Source, outcome: str, facts: Facts | None = None) -> None:
        """Count a request or a call, once, and describe it in its trace."""
        REQUESTS.record(**source._asdict(), outcome=outcome)
        self.each(lambda meter: meter.request(source, outcome, facts))

    def current_trace(self) -> str:
        """Return the trace context of the first meter that knows one."""
        for each in self.active:
            with suppress(Exception):
                if trace := each.current_trace():
                    return trace
        return ""

    def each(self, use: Callable[[Meter], None]) -> None:
        """Use each meter."""
        for meter in self.active:
            try:
                use(meter)
            except Exception:
                with suppress(Exception):  # raised by a log filter
                    logger.exception("%s raised: a figure is missing.", type(meter).__name__)


def _meters_of(chosen: Any) -> list[Meter]:
    """Return new meters by their dotted paths, of one or of a list.

    Raises `ImproperlyConfigured` with what to do.
    """
    paths = [chosen] if isinstance(chosen, str) else chosen
    if not isinstance(paths, (list, tuple)) or not all(isinstance(path, str) for path in paths):
        raise ImproperlyConfigured(f"it is {type(chosen).__name__}, not text or a list of texts.")
    return [_meter(path) for path in paths]


def _meter(path: str) -> Meter:
    try:
        made = import_string(path)()
    except ImportError as error:
        raise ImproperlyConfigured(f"{path!r} cannot be imported: {error}.") from error
    if not isinstance(made, Meter):
        raise ImproperlyConfigured(
            f"{path!r} is not a subclass of django_idempotency.instrumentation.meters.Meter."
        )
    return made


meters = Meters()

#: Seconds.
SLOW = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)

REQUESTS = Metric(
    "requests",
    "Requests and calls by what became of them.",
    (*Source._fields, "outcome"),
    unit="{request}",
)
WAIT = Metric(
    "wait.duration", "How long duplicates waited.", Source._fields, unit="s", buckets=SLOW
)
LEASE_LOST = Metric(
    "lease.lost",
    "Records that their owner could not settle in time.",
    Source._fields,
    unit="{record}",
)

setting_changed.connect(meters.reload)
