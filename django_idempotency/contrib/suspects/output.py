"""Suspects as text: a table, JSON lines, CSV, and the text format of Prometheus."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from io import StringIO
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.utils import timezone

from ...inspection.terminal import plain, span
from ...management.textfile import gauge
from .searching import Sighting, Suspect

#: Primary keys that a line of the table shows.
_SHOWN = 5
#: What a spreadsheet takes for the beginning of a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class _Encoder(DjangoJSONEncoder):
    """Writes any value of a field: what JSON does not know, as text."""

    def default(self, o: Any) -> Any:
        try:
            return super().default(o)
        except TypeError:
            return _text(o)


def as_table(suspects: Sequence[Suspect]) -> Iterator[str]:
    """Yield a line for each group."""
    if suspects:
        yield f"{'FIRST AT':<24} {'ROWS':>5} {'SPAN':<12} {'PRIMARY KEYS':<28} FACTS\n"
    for each in suspects:
        keys = ", ".join(_pk(row) for row in each.rows[:_SHOWN]) + (
            " …" if len(each.rows) > _SHOWN else ""
        )
        facts = ", ".join(f"{name}={_text(value)}" for name, value in each.facts.items())
        yield (
            f"{_local(each.first_at):<24} {len(each.rows):>5} {span(each.span):<12} "
            f"{plain(keys):<28} {plain(facts)}\n"
        )


def as_json(suspects: Iterable[Suspect]) -> Iterator[str]:
    """Yield an object a line."""
    for each in suspects:
        shown = {
            "model": each.model,
            "facts": each.facts,
            "first_at": each.first_at.isoformat(),
            "last_at": each.last_at.isoformat(),
            "span_seconds": each.span.total_seconds(),
            "rows": [
                {"pk": _one(row.pk), "at": row.at.isoformat(), "key": row.key} for row in each.rows
            ],
        }
        yield json.dumps(shown, cls=_Encoder) + "\n"


def as_csv(suspects: Iterable[Suspect], names: Iterable[str]) -> str:
    """Return a line for each row of the model; those of one group have one number."""
    out = StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(map(_cell, ["group", "model", "pk", "at", "key", *names]))
    for number, each in enumerate(suspects, start=1):
        for row in each.rows:
            key = "" if row.key is None else row.key
            lines.writerow(
                map(_cell, [number, each.model, _one(row.pk), row.at.isoformat(), key, *row.facts])
            )
    return out.getvalue()


def as_textfile(suspects: Sequence[Suspect], *, model: str, names: Iterable[str]) -> Iterator[str]:
    """Yield two gauges of this search. No label holds a fact."""
    labels = {"model": model, "same": ",".join(names)}
    groups = len(suspects)
    rows = sum(len(each.rows) for each in suspects)
    yield from gauge(
        "suspects", "Groups of rows with equal facts under different keys.", [(labels, groups)]
    )
    yield from gauge("suspect_rows", "Rows of such groups.", [(labels, rows)])


def _cell(value: Any) -> Any:
    """Return a value for a cell. A client chooses its key: no spreadsheet may run it."""
    if isinstance(value, (int, float)):
        return value
    text = _text(value)
    return f"'{text}" if isinstance(value, str) and text.startswith(_FORMULA) else text


def _text(value: Any) -> str:
    return bytes(value).hex() if isinstance(value, (bytes, bytearray, memoryview)) else str(value)


def _one(pk: tuple[Any, ...]) -> Any:
    """Return a primary key as it is read: a list only if it is composite."""
    return pk[0] if len(pk) == 1 else list(pk)


def _pk(row: Sighting) -> str:
    return "/".join(_text(value) for value in row.pk)


def _local(value: datetime) -> str:
    local = timezone.localtime(value) if timezone.is_aware(value) else value
    return f"{local:%Y-%m-%d %H:%M:%S %Z}".rstrip()
