"""The rest of the reference: events, permissions, options, request.idempotency."""

from __future__ import annotations

import inspect
import logging
import re
from importlib import import_module

import yaml
from django.core.management import load_command_class
from django.dispatch import Signal

from django_idempotency import signals
from django_idempotency.contrib.graphql.kind import RESOLVERS
from django_idempotency.contrib.graphql.views import READS
from django_idempotency.contrib.ninja.kind import INSIDE
from django_idempotency.contrib.observe.observing import ERROR, REPLAY, RUN, UNKNOWN
from django_idempotency.http.exchange import HeaderStatus
from django_idempotency.http.handle import RequestIdempotency
from django_idempotency.http.unguarded import REASONS
from django_idempotency.inspection.status import DisplayStatus
from django_idempotency.instrumentation import observer
from django_idempotency.instrumentation.meters import METRICS
from django_idempotency.instrumentation.outcomes import OUTCOMES
from django_idempotency.models import IdempotencyRecord
from django_idempotency.runtime.wings import extended
from django_idempotency.testing import assert_idempotent

from ..management.test_idempotency_monitoring import DECLARING
from .pages import ROOT, checked, code, table, text

#: Options that every command has.
DJANGOS = {
    *("help", "version", "verbosity", "settings", "pythonpath", "traceback"),
    *("no_color", "force_color", "skip_checks"),
}


def test_every_event() -> None:
    """Every event has its signal and level; the runbook quotes the log's message as it is."""
    shown = {code(event): code(level) for event, level, _ in checked("reference/signals-and-logs.md", "observing")}
    assert shown == {name: logging.getLevelName(event.level) for name, event in signals.EVENTS.items()}
    others = {"duplicate_found"}  # of a command, not of a key
    assert set(shown) | others == {name for name, value in vars(signals).items() if isinstance(value, Signal)}
    assert signals.lost.sentence in text("how-to/unknown-outcome.md")
    assert signals.taken_over.sentence in text("tutorial/first-charge.md")


def test_every_permission() -> None:
    """The permissions are those of the model, and no other."""
    options = IdempotencyRecord._meta
    declared = [f"{verb}_{options.model_name}" for verb in options.default_permissions]
    declared += [codename for codename, _ in options.permissions]
    shown = [code(row[0]) for row in checked("reference/admin.md", "permissions")]
    assert shown == [f"{options.app_label}.{codename}" for codename in declared]


def test_every_option_of_the_purge() -> None:
    """Every option has its default."""
    command = load_command_class("django_idempotency", "purge_idempotency")
    parser = command.create_parser("manage.py", "purge_idempotency")
    ours = {
        action.option_strings[0]: action.default
        for action in parser._actions
        if action.option_strings and action.dest not in DJANGOS
    }
    rows = {code(option): default for option, default, _ in table("reference/commands.md", "| option |")}
    assert list(rows) == list(ours)
    for option, default in rows.items():
        if default.startswith("`"):
            assert str(ours[option]) in (code(default), f"{code(default)}.0")


def test_every_option_of_the_search_for_suspects() -> None:
    """Every option is listed, in the order of --help, and what the signal carries."""
    parser = load_command_class("django_idempotency.contrib.suspects", "idempotency_suspects").create_parser(
        "manage.py", "x"
    )
    ours = {
        action.option_strings[0]: action.default
        for action in parser._actions
        if action.option_strings and action.dest not in DJANGOS
    }
    page = text("reference/commands.md").partition("## idempotency_suspects")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `(--[\w-]+)` \| ([^|]*?) *\|", page, re.MULTILINE))
    assert list(rows) == list(ours)
    assert {
        name: code(default) for name, default in rows.items() if default.startswith("`") and " " not in default
    } == {name: str(ours[name]) for name in ("--since", "--until", "--limit", "--format")}


def test_request_idempotency() -> None:
    """The page has every member of the handle."""
    shown = {code(row[0]).partition("(")[0] for row in table("reference/python.md", "## request.idempotency")}
    members = {name for cls in extended(RequestIdempotency).__mro__[:-1] for name in vars(cls)}
    assert shown == {name for name in members if not name.startswith("_")}


def test_assert_idempotent() -> None:
    """Every argument has its default, in the how-to's table and in the reference's line."""
    parameters = list(inspect.signature(assert_idempotent).parameters.values())
    shown = {
        code(name): code(default)
        for name, default, _ in table("how-to/testing-your-views.md", "| argument | default |")
    }
    assert shown == {each.name: str(each.default).removesuffix(".0") for each in parameters[1:]}
    line = ", ".join([parameters[0].name, *(f"{name}={default}" for name, default in shown.items())])
    assert f"`django_idempotency.testing.assert_idempotent({line})`" in text("reference/python.md")


def test_every_status() -> None:
    """Each value of the header is listed, in the order of the code."""
    assert [code(row[0]) for row in checked("reference/http.md", "Status")] == [status.value for status in HeaderStatus]


def test_every_label_of_the_admin() -> None:
    assert [code(label) for label, _ in checked("reference/admin.md", "labels")] == [
        each.value for each in DisplayStatus
    ]


def test_every_alert() -> None:
    rules = yaml.safe_load((ROOT / "django_idempotency/contrib/monitoring/rules.yml").read_text())["groups"][0]["rules"]
    shown = {code(name): severity for name, _, severity in checked("how-to/alerts.md", "alerts")}
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
        code(name): (code(other), kind, tuple(re.findall("`(.*?)`", labels))) for name, other, kind, labels in shown
    }


def test_every_outcome_of_the_metrics() -> None:
    assert [code(row[0]) for row in checked("how-to/metrics.md", "Outcome")] == list(OUTCOMES)


def test_every_reason_of_an_observed_request() -> None:
    """Every word that is not the code of a problem is listed, and every level."""
    shown = {code(reason): code(level) for reason, level, _ in checked("reference/signals-and-logs.md", "Observed")}
    default = signals.observed.level
    listed = {word: observer._OBSERVED_LEVELS.get(word, default) for word in shown}
    assert shown == {word: logging.getLevelName(level) for word, level in listed.items()}
    assert {RUN, REPLAY, UNKNOWN, ERROR, *observer._OBSERVED_LEVELS} <= set(shown)


def test_every_reason_of_an_unguarded_request() -> None:
    """Every reason has the level of its log record."""
    shown = [(code(reason), code(level)) for reason, level, *_ in checked("reference/signals-and-logs.md", "Reason")]
    *core, exempt = REASONS
    known = (*core, INSIDE, RESOLVERS, READS, exempt)
    assert shown == [(reason.code, logging.getLevelName(reason.level)) for reason in known]
