"""The page of batches: every option with its default, every outcome, every member of the report."""

from __future__ import annotations

import inspect
from typing import Any

from django_idempotency.contrib.batches import BatchItem, BatchReport, aprocess_batch, process_batch
from django_idempotency.contrib.batches.report import OUTCOMES
from django_idempotency.contrib.batches.running import ITEM_ID

from .pages import _CODE, checked, code, text

PAGE = "how-to/batches-and-durable-functions.md"


def options(function: Any) -> dict[str, Any]:
    return {
        parameter.name: parameter.default
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }


def test_every_option() -> None:
    """The page has every option with its default; the async entry point has one more."""
    rows = {code(option): default for option, default, _ in checked(PAGE, "batch options")}
    assert rows.keys() == options(process_batch).keys()
    assert {
        name: repr(default) for name, default in options(process_batch).items() if name != "item_id"
    } == {name: code(default) for name, default in rows.items() if name != "item_id"}
    assert options(aprocess_batch) == {"concurrency": 10, **options(process_batch)}
    assert "concurrency=10" in text(PAGE)


def test_the_ids_that_are_known() -> None:
    """The ids are listed in the order in which they are looked for."""
    (said,) = (
        meaning
        for option, _, meaning in checked(PAGE, "batch options")
        if code(option) == "item_id"
    )
    assert [found for _, found in _CODE.findall(said)] == ITEM_ID.split(" || ")


def test_every_outcome() -> None:
    """The outcomes are listed in the order of a report."""
    assert [code(row[0]) for row in checked(PAGE, "batch outcomes")] == list(OUTCOMES)


def test_every_member() -> None:
    """The page has every member of the report and of an item."""
    shown = {name for row in checked(PAGE, "batch report") for _, name in _CODE.findall(row[0])}
    assert {name.partition("(")[0] for name in shown} | set(OUTCOMES) == {
        name for name in dir(BatchReport) if not name.startswith("_")
    }
    assert all(f"`{name}`" in text(PAGE) for name in BatchItem.__slots__)
