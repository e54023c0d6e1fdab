"""The dashboard, as Grafana imports it. Each panel is a title, its expressions and a unit; the rest is layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Panels side by side, of Grafana's 24 columns, and the height of each.
_WIDTH, _HEIGHT = 8, 8
_RATE = "$__rate_interval"
_REQUESTS = 'django_idempotency_requests_total{job=~"$job"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One chart: legend → expression."""

    title: str
    about: str
    lines: Mapping[str, str]
    #: As Grafana names it.
    unit: str = "short"
    #: Stacked areas, which add up.
    stacked: bool = False


def _rate(outcomes: str = "", *, by: str = "outcome") -> str:
    chosen = f', outcome=~"{outcomes}"' if outcomes else ""
    return f"sum by ({by}) (rate({_REQUESTS}{chosen}}}[{_RATE}]))"


def _share(outcomes: str, of: str = "") -> str:
    whole = f', outcome=~"{of}"' if of else ""
    part = f'sum(rate({_REQUESTS}, outcome=~"{outcomes}"}}[{_RATE}]))'
    return f"{part} / sum(rate({_REQUESTS}{whole}}}[{_RATE}]))"


def _quantile(quantile: float, metric: str, *, by: str = "") -> str:
    labels = f"le, {by}" if by else "le"
    rate = f'rate(django_idempotency_{metric}_bucket{{job=~"$job"}}[{_RATE}])'
    return f"histogram_quantile({quantile}, sum by ({labels}) ({rate}))"


_DUPLICATES = "replayed|waited|not_stored|store_error|degraded|taken_over"

PANELS = (
    Panel(
        title="Requests by outcome",
        about="What became of each request and call.",
        lines={"{{outcome}}": _rate()},
        unit="reqps",
        stacked=True,
    ),
    Panel(
        title="Duplicates that got the first response",
        about="Below 99 %, retries are not answered: see the refusals.",
        lines={"served": _share("replayed|waited", _DUPLICATES)},
        unit="percentunit",
    ),
    Panel(
        title="Duplicates caught by route, a day",
        about="Work that would have been done twice.",
        lines={"{{route}}": f'sum by (route) (increase({_REQUESTS}, outcome=~"replayed|waited|running"}}[1d]))'},
    ),
    Panel(
        title="Retries, of all requests",
        about="2 to 3 % are usual.",
        lines={
            "retries": _share("replayed|waited|running|mismatch|held|not_stored"),
            "while the first one runs": _share("running"),
            "without a key": _share("missing|unkeyed"),
        },
        unit="percentunit",
    ),
    Panel(
        title="Refusals by route",
        about="A mismatch is a client that uses one key twice.",
        lines={"{{outcome}} {{route}}": _rate("mismatch|missing|invalid|late|refused", by="outcome, route")},
        unit="reqps",
    ),
    Panel(
        title="Needs attention",
        about="Each should be zero.",
        lines={
            "{{outcome}}": _rate("taken_over|held|degraded|store_error|unreadable|unguarded|not_stored"),
            "lease lost": f'sum(rate(django_idempotency_lease_lost_total{{job=~"$job"}}[{_RATE}]))',
        },
        unit="reqps",
    ),
    Panel(
        title="Store: 99th percentile by verb",
        about="What a request waits for.",
        lines={"{{store}} {{operation}}": _quantile(0.99, "store_operation_duration_seconds", by="store, operation")},
        unit="s",
    ),
    Panel(
        title="Waiting for the first request",
        about='How long duplicates wait under on_busy="wait".',
        lines={
            "median": _quantile(0.5, "wait_duration_seconds"),
            "99th percentile": _quantile(0.99, "wait_duration_seconds"),
        },
        unit="s",
    ),
    Panel(
        title="Outbox: from sending to publishing",
        about="And the messages that could not be published.",
        lines={
            "median": _quantile(0.5, "outbox_lag_seconds"),
            "99th percentile": _quantile(0.99, "outbox_lag_seconds"),
        },
        unit="s",
    ),
    Panel(
        title="Records by status",
        about="From manage.py idempotency_stats.",
        lines={"{{store}} {{status}}": "sum by (store, status) (django_idempotency_records)"},
        stacked=True,
    ),
    Panel(
        title="Oldest running, lapsed lease, purge",
        about="From manage.py idempotency_stats.",
        lines={
            "oldest running": "max(django_idempotency_oldest_running_seconds)",
            "longest lapsed lease": "max(django_idempotency_longest_lapsed_lease_seconds)",
            "purge behind": "max(django_idempotency_purge_lag_seconds)",
        },
        unit="s",
    ),
    Panel(
        title="Size of the store",
        about="From manage.py idempotency_stats.",
        lines={"{{store}}": "max by (store) (django_idempotency_store_size_bytes)"},
        unit="bytes",
    ),
)


def dashboard() -> dict[str, Any]:
    """Return the dashboard as a JSON object, for Grafana's "Import"."""
    return {
        "title": "Idempotency",
        "uid": "django-idempotency",
        "tags": ["django", "idempotency"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_datasource(), _jobs()]},
        "panels": [_panel(number, panel) for number, panel in enumerate(PANELS)],
    }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}


def _jobs() -> dict[str, Any]:
    query = "label_values(django_idempotency_requests_total, job)"
    return {
        "name": "job",
        "type": "query",
        "label": "Job",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": query,
        "definition": query,
        "includeAll": True,
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
        "refresh": 2,
    }


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    drawn: dict[str, Any] = {"lineWidth": 1, "fillOpacity": 40 if panel.stacked else 8, "showPoints": "never"}
    if panel.stacked:
        drawn["stacking"] = {"mode": "normal"}
    targets = [
        {"refId": chr(ord("A") + index), "expr": expression, "legendFormat": legend}
        for index, (legend, expression) in enumerate(panel.lines.items())
    ]
    return {
        "id": number + 1,
        "title": panel.title,
        "description": panel.about,
        "type": "timeseries",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {"x": number % 3 * _WIDTH, "y": number // 3 * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": drawn}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": targets,
    }
