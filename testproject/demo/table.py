"""The rows as a table, in colour on a terminal and as plain text elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .rows import Row

WIDTH = 100


def console() -> Console:
    """Return a console on stdout with a readable width, wherever stdout leads."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")  # an ASCII terminal shows ? for missing characters
    made = Console(highlight=False)
    made.width = min(made.width, WIDTH) if made.is_terminal else WIDTH
    return made


def table(rows: Iterable[Row], *, ascii_only: bool = False) -> Table:
    """Lay out the rows as a table."""
    kept, broken = ("ok", "NO") if ascii_only else ("✔", "✘")
    # At 80 columns the longest word, request-mismatch, still fits.
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    made.add_column("Journey", style="bold", no_wrap=True)
    made.add_column("Sent")
    made.add_column("Promised", min_width=16)
    made.add_column("Answered", min_width=16)
    made.add_column("Effects", no_wrap=True)
    made.add_column("", no_wrap=True)
    for row in rows:
        mark = Text(kept, "green") if row.kept else Text(broken, "bold red")
        seen = "" if row.kept else "red"
        made.add_row(
            row.journey,
            Text(row.sent),
            str(row.promise),
            Text(row.seen, seen),
            Text(row.counted, seen),
            mark,
        )
    return made
