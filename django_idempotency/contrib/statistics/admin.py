"""The page of figures: what the table says about an hour, a day and a week, by four bounded
statements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from django.db import DEFAULT_DB_ALIAS
from django.http import HttpRequest, HttpResponse
from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext_lazy as _

from ... import conf
from ...admin.columns import failure_of, record_of_row
from ...admin.panels import PAGES, Page, rendered
from ...core.states import RecordState
from ...errors import RecordUnreadable, StoreUnavailable
from ...inspection.status import DISPLAYS, Tally
from ...inspection.terminal import span
from ...models import IdempotencyRecord, RepeatCount
from .figures import PERIODS, SAMPLE, Fact, Period, Series, over, repeated, share

#: Rows that a purge would delete and that are counted.
DUE = 10_000


def statistics_view(of: Any, request: HttpRequest) -> HttpResponse:
    """Show the figures of all records, or of a sample. `of`: the records' model admin."""
    # The first records in the order of their ids, which are hashes, without responses.
    found = of.get_queryset(request).defer("response_headers", "response_body").order_by("pk")
    rows: Sequence[IdempotencyRecord] = list(found[:SAMPLE])
    whole = share([row.pk for row in rows], limit=SAMPLE)
    scale = 1.0 if whole is None else 1 / whole
    tally = Tally()
    facts = list[Fact]()
    now = None
    for row in rows:
        try:
            record = record_of_row(row)
        except RecordUnreadable:
            tally.unreadable += 1
            continue
        tally.add(record)
        now = record.read_at
        failure = failure_of(row)
        failed_at = None if failure is None else failure.at or record.created_at
        facts.append(
            Fact(
                record.created_at,
                record.completed_at,
                None if failure else row.response_status,
                failed_at,
            )
        )
    shown = Counter(tally.by_status)
    return rendered(
        of,
        request,
        "statistics",
        title=_("Statistics"),
        sampled=None if whole == 1.0 else len(rows),
        unknown_whole=whole is None,
        total=round(tally.total * scale),
        statuses=[
            (DISPLAYS[RecordState(name)], round(count * scale))
            for name, count in (+shown).most_common()
        ],
        unreadable=tally.unreadable,
        ages=list(ages(of, request, tally, now)),
        periods=[] if now is None else list(periods(of, facts, now, scale)),
    )


def periods(
    of: Any, facts: Sequence[Fact], now: datetime, scale: float
) -> Iterator[tuple[Period, list[Series]]]:
    """Yield the figures of each period that are not zero, with those of COUNT_REPLAYS if the
    project counts.
    """
    seen: Sequence[Any] = ()
    if counts := conf.get("COUNT_REPLAYS"):
        rows = RepeatCount.objects.using(of.get_store().rows_in or DEFAULT_DB_ALIAS).order_by("-pk")
        seen = list(rows.values_list("last_seen", "replays", "mismatches")[:SAMPLE])
    for period in PERIODS:
        figures = [
            *over(period, facts, now, scale),
            *(repeated(period, seen, now) if counts else ()),
        ]
        yield period, [each for each in figures if each.total]


def ages(
    of: Any, request: HttpRequest, tally: Tally, now: datetime | None
) -> Iterator[tuple[Any, str]]:
    """Yield what is oldest, and how far a purge is behind.

    That and the size are those of the table, never estimated.
    """
    if tally.oldest_running:
        yield _("Oldest running"), span(timedelta(seconds=tally.oldest_running))
    if tally.by_status[RecordState.ABANDONED.value]:
        yield _("Longest abandoned"), span(timedelta(seconds=tally.longest_abandoned))
    oldest = (
        of.get_queryset(request).order_by("purge_at").values_list("purge_at", flat=True).first()
    )
    if now is not None and oldest is not None:
        yield _("Purge is behind by"), span(max(now - oldest, timedelta(0)))
    with suppress(StoreUnavailable):
        store = of.get_store()
        if due := store.count_due(limit=DUE):
            yield _("To be purged"), f"{due:,}" if due < DUE else f"≥ {DUE:,}"
        size = store.size()
        if size is not None:
            yield _("Size, with indexes"), filesizeformat(size)


PAGES.insert(0, Page(name="statistics", title=_("Statistics"), view=statistics_view))
