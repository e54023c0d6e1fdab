"""The rest of the reference: events, permissions, request.idempotency."""

from __future__ import annotations

import inspect
import logging
import re
from importlib import import_module

import yaml
from django.dispatch import Signal

from django_idempotency import signals
from django_idempotency.contrib.graphql.kind import RESOLVERS
from django_idempotency.contrib.graphql.views import READS
from django_idempotency.contrib.ninja.kind import INSIDE
from django_idempotency.contrib.observe.observing import ERROR, LEVELS, REPLAY, RUN, UNKNOWN
from django_idempotency.core.states import RecordState
from django_idempotency.core.statuses import HeaderStatus
from django_idempotency.http.exchange import RequestIdempotency
from django_idempotency.http.unguarded import REASONS
from django_idempotency.instrumentation.meters import METRICS
from django_idempotency.instrumentation.outcomes import OUTCOMES
from django_idempotency.models import IdempotencyRecord
from django_idempotency.runtime.app_extensions import extended
from django_idempotency.testing import assert_idempotent

from .pages import ROOT, checked, code, table, text
from .test_monitoring import DECLARING


def test_every_event() -> None:
    """Every event has its signal and level; the runbook quotes the log's message as it is."""
    shown = {
        code(event): code(level)
        for event, level, _ in checked("reference/signals-and-logs.md", "observing")
    }
    assert shown == {
        name: logging.getLevelName(event.level) for name, event in signals.EVENTS.items()
    }
    others = {"duplicate_found"}  # of a command, not of a key
    assert set(shown) | others == {
        name for name, value in vars(signals).items() if isinstance(value, Signal)
    }
    assert signals.lost.sentence in text("how-to/unknown-outcome.md")
    assert signals.taken_over.sentence in text("tutorial/first-charge.md")


def test_every_permission() -> None:
    """The permissions are those of the model, and no other."""
    options = IdempotencyRecord._meta
    declared = [f"{verb}_{options.model_name}" for verb in options.default_permissions]
    declared += [codename for codename, _ in options.permissions]
    shown = [code(row[0]) for row in checked("reference/admin.md", "permissions")]
    assert shown == [f"{options.app_label}.{codename}" for codename in declared]


def test_request_idempotency() -> None:
    """The page has every member of the handle."""
    shown = {
        code(row[0]).partition("(")[0]
        for row in table("reference/settings.md", "## request.idempotency")
    }
    members = {name for cls in extended(RequestIdempotency).__mro__[:-1] for name in vars(cls)}
    assert shown == {name for name in members if not name.startswith("_")}


def test_assert_idempotent() -> None:
    """Every argument has its default."""
    parameters = list(inspect.signature(assert_idempotent).parameters.values())
    shown = {
        code(name): code(default)
        for name, default, _ in table("how-to/testing-your-views.md", "| argument | default |")
    }
    assert shown == {each.name: str(each.default).removesuffix(".0") for each in parameters[1:]}


def test_every_status() -> None:
    """Each value of the header is listed, in the order of the code."""
    assert [code(row[0]) for row in checked("reference/http.md", "Status")] == [
        status.value for status in HeaderStatus
    ]


def test_every_label_of_the_admin() -> None:
    assert [code(label) for label, _ in checked("reference/admin.md", "labels")] == [
        each.value for each in RecordState
    ]


def test_every_alert() -> None:
    rules = yaml.safe_load((ROOT / "docs/monitoring/rules.yml").read_text())["groups"][0]["rules"]
    shown = {code(name): severity for name, _, severity in checked("how-to/metrics.md", "alerts")}
    assert shown == {rule["alert"]: rule["labels"]["severity"] for rule in rules if "alert" in rule}


def test_every_metric() -> None:
    """Each that is declared has its names, its type and its labels."""
    for name in DECLARING:
        import_module(f"django_idempotency.{name}")
    ours = [metric for metric in METRICS if not metric.name.startswith("tests.")]
    declared = {
        f"django_idempotency_{metric.name.replace('.', '_')}_{'seconds' if metric.buckets else 'total'}": (
            f"django_idempotency.{metric.name}",
            "histogram" if metric.buckets else "counter",
            metric.labels,
        )
        for metric in ours
    }
    shown = checked("how-to/metrics.md", "metrics")
    assert declared == {
        code(name): (code(other), kind, tuple(re.findall("`(.*?)`", labels)))
        for name, other, kind, labels in shown
    }


def test_every_outcome_of_the_metrics() -> None:
    assert [code(row[0]) for row in checked("how-to/metrics.md", "Outcome")] == list(OUTCOMES)


def test_every_reason_of_an_observed_request() -> None:
    """Every word that is not the code of a problem is listed, and every level."""
    shown = {
        code(reason): code(level)
        for reason, level, _ in checked("reference/signals-and-logs.md", "Observed")
    }
    default = signals.observed.level
    listed = {word: LEVELS.get(word, default) for word in shown}
    assert shown == {word: logging.getLevelName(level) for word, level in listed.items()}
    assert {RUN, REPLAY, UNKNOWN, ERROR, *LEVELS} <= set(shown)


def test_every_reason_of_an_unguarded_request() -> None:
    """Every reason has the level of its log record."""
    shown = [
        (code(reason), code(level))
        for reason, level, *_ in checked("reference/signals-and-logs.md", "Reason")
    ]
    *core, exempt = REASONS
    known = (*core, INSIDE, RESOLVERS, READS, exempt)
    assert shown == [(reason.code, logging.getLevelName(reason.level)) for reason in known]
