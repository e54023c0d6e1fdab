"""The docs' picture of the dashboard: the demo under traffic, a real Prometheus, and each panel's
own expressions.

    python -m tests.docs.dashboard

Takes two minutes. Grafana draws it nicer; the lines are the same.
"""

from __future__ import annotations

import json
import random
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode
from urllib.request import urlopen
from xml.sax.saxutils import escape

from django.core.management import call_command

from testproject.demo.client import Client
from testproject.demo.server import HOST, Server, serving
from testproject.demo.stage import Cast, prepare

from ..support.prometheus import scraping
from .pages import DOCS

PANELS = json.loads((DOCS / "monitoring/dashboard.json").read_text(encoding="utf-8"))["panels"]
#: Seconds of traffic, between two points of a line, and over which a rate is taken.
TRAFFIC, STEP, RATE = 100, 1, "10s"
WIDTH, HEIGHT, ACROSS = 320, 190, 3
COLOURS = ("#43a047", "#5c6bc0", "#fb8c00", "#e53935", "#8e24aa", "#00897b", "#6d4c41", "#c0ca33")
STYLE = """
.chart { --ink: var(--md-typeset-color, #24292f); background: var(--md-default-bg-color, #fff) }
@media (prefers-color-scheme: dark) {
  .chart { --ink: var(--md-typeset-color, #d1d5db); background: var(--md-default-bg-color, #0d1117) }
}
.chart text { fill: var(--ink); font: 10px Helvetica, Arial, "Liberation Sans", sans-serif }
.chart .title { font-size: 12px; font-weight: bold }
.chart .grid { stroke: var(--ink); stroke-opacity: .18 }
.chart .panel { fill: none; stroke: var(--ink); stroke-opacity: .3 }
.chart polyline { fill: none; stroke-width: 1.5 }
"""


class Line(NamedTuple):
    label: str
    points: Sequence[tuple[float, float]]


# ------------------------------------------------------------------------------------------ traffic


def customer(client: Client, number: int, until: float) -> None:
    """Charge, retry, and now and then do what clients do wrong."""
    chance, orders = random.Random(number), count()
    while time.monotonic() < until:
        key, amount = f"{number}-{next(orders)}", chance.randint(100, 9900)
        what = chance.random()
        client.charge(amount, key=None if what < 0.05 else key)
        if what > 0.93:
            client.charge(amount, key=key)
        if what > 0.985:
            client.charge(amount + 1, key=key)
        if what > 0.99:
            slow = partial(client.charge, amount, key=f"{key}-slow", card="tok_slow")
            twin = threading.Thread(target=slow)
            twin.start()
            slow()
            twin.join()
        time.sleep(chance.expovariate(12))


def keep_counting(file: Path, until: float) -> None:
    """Write what `idempotency_stores stats` finds, as a cron job would."""
    while time.monotonic() < until:
        call_command("idempotency_stores", "stats", format="textfile", output=file, verbosity=0)
        time.sleep(2)


@contextmanager
def published(folder: Path) -> Iterator[str]:
    """Serve the files of a folder, as the node exporter would."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer((HOST, 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"{HOST}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


# ------------------------------------------------------------------------------------------ drawing


def asked(prometheus: str, expression: str, legend: str, start: float) -> list[Line]:
    filled = (
        expression.replace("$__rate_interval", RATE)
        .replace("[1d]", f"[{TRAFFIC}s]")
        .replace("$job", ".*")
    )
    query = urlencode({"query": filled, "start": start, "end": start + TRAFFIC, "step": STEP})
    with urlopen(f"{prometheus}/api/v1/query_range?{query}", timeout=20) as response:
        found = json.load(response)["data"]["result"]
    return [
        Line(
            labelled(legend, each["metric"]),
            [(at - start, float(value)) for at, value in each["values"] if value != "NaN"],
        )
        for each in found
    ]


def labelled(legend: str, labels: Mapping[str, str]) -> str:
    for name, value in labels.items():
        legend = legend.replace(f"{{{{{name}}}}}", value)
    return legend


def drawn(panel: Mapping[str, Any], lines: Sequence[Line], number: int) -> str:
    """Return a panel as a group of SVG."""
    unit = panel["fieldConfig"]["defaults"]["unit"]
    left, right, top, bottom = 44, WIDTH - 12, 30, HEIGHT - 46
    highest = max((value for line in lines for _, value in line.points), default=0) or 1
    parts = [
        f'<rect class="panel" x="4" y="4" width="{WIDTH - 8}" height="{HEIGHT - 8}" rx="3"/>',
        f'<text class="title" x="12" y="20">{escape(panel["title"])}</text>',
    ]
    for part in (0, 0.5, 1):
        y = bottom - part * (bottom - top)
        parts.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(
            f'<text x="{left - 4}" y="{y + 3:.1f}" '
            f'text-anchor="end">{shown(part * highest, unit)}</text>'
        )
    for index, line in enumerate(lines[:8]):
        colour = COLOURS[index]
        way = " ".join(
            f"{left + at / TRAFFIC * (right - left):.1f},{bottom - value / highest * (bottom - top):.1f}"
            for at, value in line.points
        )
        x, y = 12 + index % 3 * 100, HEIGHT - 30 + index // 3 * 10
        parts.append(f'<polyline points="{way}" stroke="{colour}"/>')
        parts.append(f'<rect x="{x}" y="{y - 5}" width="8" height="3" fill="{colour}"/>')
        parts.append(f'<text x="{x + 11}" y="{y}">{escape(line.label[:18])}</text>')
    place = f"translate({number % ACROSS * WIDTH} {number // ACROSS * HEIGHT})"
    return f'<g transform="{place}">{"".join(parts)}</g>'


def shown(value: float, unit: str) -> str:
    match unit:
        case "percentunit":
            return f"{value:.1%}" if value < 0.1 else f"{value:.0%}"
        case "s":
            return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.0f} s"
        case "bytes":
            return f"{value / 2**20:.1f} MiB"
        case _:
            return f"{value:.2g}" if value < 10 else f"{value:,.0f}"


def main() -> None:
    with tempfile.TemporaryDirectory(
        prefix="idempotency-dashboard-", ignore_cleanup_errors=True
    ) as made:
        folder = Path(made)
        cast = prepare(folder / "demo.sqlite3")
        (folder / "textfiles").mkdir()
        with serving(folder / "gunicorn.log") as server, published(folder / "textfiles") as files:
            targets = {f"{HOST}:{server.port}": "/metrics/", files: "/idempotency.prom"}
            with scraping(targets, folder, every="1s") as prometheus:
                start = driven(server, cast, folder / "textfiles" / "idempotency.prom")
                panels = [
                    drawn(
                        panel,
                        [
                            line
                            for target in panel["targets"]
                            for line in asked(
                                prometheus, target["expr"], target["legendFormat"], start
                            )
                        ],
                        number,
                    )
                    for number, panel in enumerate(PANELS)
                ]
    width, height = ACROSS * WIDTH, -(-len(PANELS) // ACROSS) * HEIGHT
    head = (
        f'<svg class="chart" viewBox="0 0 {width} {height}" width="{width}" '
        'xmlns="http://www.w3.org/2000/svg">'
    )
    (DOCS / "pictures" / "dashboard.svg").write_text(
        "\n".join([head, f"<style>{STYLE}</style>", *panels, "</svg>", ""])
    )
    print("Drawn: docs/pictures/dashboard.svg")


def driven(server: Server, cast: Cast, file: Path) -> float:
    """Send traffic. Return when it began (seconds since 1970)."""
    clients = [Client(host=HOST, port=server.port, token=token) for token in (cast.alice, cast.bob)]
    server.wait_until(
        lambda: Client(host=HOST, port=server.port, token=cast.admin).get("/api/effects/")
    )
    start, until = time.time(), time.monotonic() + TRAFFIC
    threads = [threading.Thread(target=customer, args=(clients[n % 2], n, until)) for n in range(6)]
    threads.append(threading.Thread(target=keep_counting, args=(file, until)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return start


if __name__ == "__main__":
    main()
