"""Alert rules and the dashboard: Prometheus accepts them, and they name only what we export."""

from __future__ import annotations

import json
import re
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import REGISTRY

from django_idempotency.contrib.metrics import prometheus
from django_idempotency.instrumentation.meters import METRICS
from django_idempotency.instrumentation.outcomes import OUTCOMES
from django_idempotency.management.textfile import ABOUT

from ..support.services import needs_prometheus, program
from .pages import DOCS, anchors

#: Where metrics are declared.
DECLARING = (
    *("instrumentation.metered", "contrib.audit.writing", "contrib.suspects.searching"),
    *("contrib.outbox.relaying", "contrib.steps.journal", "contrib.client.ledger"),
    "contrib.metrics.clients",
)
_NAME = re.compile(r"django_idempotency_\w+")


def printed(what: str) -> str:
    """Return a file as a project copies it from the docs."""
    return (DOCS / "monitoring" / what).read_text(encoding="utf-8")


def exported() -> set[str]:
    """Return every name that Prometheus may scrape of us."""
    names = {f"django_idempotency_{name}" for name in ABOUT}
    for name in DECLARING:
        import_module(f"django_idempotency.{name}")
    for metric in METRICS:
        prometheus.collector(metric)
    for family in REGISTRY.collect():
        suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(
            family.type, [""]
        )
        names |= {family.name + suffix for suffix in suffixes}
    return names


def rules() -> list[dict[str, Any]]:
    return [
        rule for group in yaml.safe_load(printed("rules.yml"))["groups"] for rule in group["rules"]
    ]


def panels() -> list[dict[str, Any]]:
    return list(json.loads(printed("dashboard.json"))["panels"])


def promtool(*arguments: str, cwd: Path) -> None:
    tool = program("promtool")
    assert tool is not None
    done = subprocess.run([tool, *arguments], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_prometheus
def test_the_rules_and_their_tests_pass(tmp_path: Path) -> None:
    """What promtool says of the files as a project gets them."""
    for what in ("rules.yml", "rule-tests.yml"):
        (tmp_path / what).write_text(printed(what))
    promtool("check", "rules", "rules.yml", cwd=tmp_path)
    promtool("test", "rules", "rule-tests.yml", cwd=tmp_path)


def test_every_alert_is_tested() -> None:
    """No alert without a case in which it fires."""
    tested = {
        case["alertname"]
        for test in yaml.safe_load(printed("rule-tests.yml"))["tests"]
        for case in test.get("alert_rule_test", ())
        if case.get("exp_alerts")
    }
    assert tested >= {rule["alert"] for rule in rules() if "alert" in rule} - {
        "IdempotencyRetriesRaised"
    }


def test_every_alert_says_what_to_do() -> None:
    """A summary, a description, and a link to a section of the page of runbooks."""
    sections = set(anchors(DOCS / "how-to/metrics.md"))
    for rule in rules():
        if "alert" in rule:
            notes = rule["annotations"]
            assert notes["summary"].endswith(".")
            assert notes["description"].endswith(".")
            assert notes["runbook_url"].rpartition("#")[2] == rule["alert"].lower()
            assert rule["alert"].lower() in sections
            assert rule["labels"]["severity"] in {"page", "ticket", "info"}


def test_rules_and_panels_name_only_what_is_exported() -> None:
    """Metrics, and the values of the label `outcome`."""
    expressions = [rule["expr"] for rule in rules()] + [
        line["expr"] for panel in panels() for line in panel["targets"]
    ]
    for expression in expressions:
        assert (
            set(_NAME.findall(re.sub(r"django_idempotency:\w+(:\w+)?", "", expression)))
            <= exported()
        )
        for values in re.findall(r'outcome=~?"([^"]*)"', expression):
            assert set(values.split("|")) <= {*OUTCOMES, "published", "failed"}


@needs_prometheus
def test_every_expression_of_the_dashboard_parses(tmp_path: Path) -> None:
    """Grafana's variables filled in, each expression is one that Prometheus accepts."""
    lines = [line for panel in panels() for line in panel["targets"]]
    assert len(lines) > len(panels())
    filled = [
        line["expr"].replace("$__rate_interval", "5m").replace("$job", ".*") for line in lines
    ]
    assert not any("$" in expression for expression in filled)
    made = [
        {"record": f"panel:{number}", "expr": expression}
        for number, expression in enumerate(filled)
    ]
    (tmp_path / "panels.yml").write_text(
        yaml.safe_dump({"groups": [{"name": "panels", "rules": made}]})
    )
    promtool("check", "rules", "panels.yml", cwd=tmp_path)


def test_panels_do_not_overlap() -> None:
    """Three beside each other, each with an id, a unit and a sentence."""
    found = panels()
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in found}
    assert len(places) == len(found) == len({panel["id"] for panel in found})
    assert all(panel["description"].endswith(".") for panel in found)


def test_stacked_panels_add_up() -> None:
    """Only what is counted once is stacked."""
    for panel in panels():
        stacked = "stacking" in panel["fieldConfig"]["defaults"]["custom"]
        assert not stacked or len(panel["targets"]) == 1
