"""The page of figures: what the table says about an hour, a day and a week, by four bounded statements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db import DEFAULT_DB_ALIAS
from django.http import HttpRequest, HttpResponse
from django.template.defaultfilters import filesizeformat
from django.template.response import TemplateResponse
from django.utils.translation import gettext_lazy as _

from .. import conf
from ..core.failures import failure_in
from ..core.records import Record
from ..errors import RecordUnreadable, StoreUnavailable
from ..inspection.statistics import PERIODS, SAMPLE, Fact, Period, Series, over, repeated, share
from ..inspection.stats import HELD, Tally
from ..inspection.status import DisplayStatus
from ..inspection.terminal import span
from ..models import IdempotencyRecord, RepeatCount
from ..stores.orm.rows import outcome_of
from .interventions import Interventions
from .rows import record_of_row

#: Rows that a purge would delete and that are counted.
DUE = 10_000


class Statistics(Interventions):
    """Adds the page of figures to the records' admin."""

    def statistics_view(self, request: HttpRequest) -> HttpResponse:
        """Show the figures of all records, or of a sample."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        rows = self._sample(request)
        whole = share([row.pk for row in rows], limit=SAMPLE)
        scale = 1.0 if whole is None else 1 / whole
        tally, facts = Tally(), list[Fact]()
        now = None
        for row in rows:
            try:
                record = record_of_row(row)
            except RecordUnreadable:
                tally.unreadable += 1
                continue
            tally.add(record)
            now = record.read_at
            facts.append(_fact(row, record))
        context = {
            **self.admin_site.each_context(request),
            "title": _("Statistics"),
            "opts": self.opts,
            "media": self.media,
            "sampled": None if whole == 1.0 else len(rows),
            "unknown_whole": whole is None,
            "total": round(tally.total * scale),
            "statuses": [
                (DisplayStatus(name), round(count * scale)) for name, count in _shown(tally.by_status).most_common()
            ],
            "unreadable": tally.unreadable,
            "ages": list(self._ages(request, tally, now)),
            "periods": [] if now is None else list(self._periods(facts, now, scale)),
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/django_idempotency/idempotencyrecord/statistics.html", context)

    def _sample(self, request: HttpRequest) -> Sequence[IdempotencyRecord]:
        """Read the first records in the order of their ids, which are hashes, without responses."""
        return list(self.get_queryset(request).defer("response_headers", "response_body").order_by("pk")[:SAMPLE])

    def _periods(self, facts: Sequence[Fact], now: datetime, scale: float) -> Iterator[tuple[Period, list[Series]]]:
        """Yield the figures of each period that are not zero, with those of COUNT_REPLAYS if the project counts."""
        counts = conf.get("COUNT_REPLAYS")
        seen = list[tuple[datetime, int, int]]()
        if counts:
            using = self.get_store().rows_in or DEFAULT_DB_ALIAS
            rows = RepeatCount.objects.using(using).order_by("-pk")
            seen = list(rows.values_list("last_seen", "replays", "mismatches")[:SAMPLE])
        for period in PERIODS:
            figures = [*over(period, facts, now, scale), *(repeated(period, seen, now) if counts else ())]
            yield period, [each for each in figures if each.total]

    def _ages(self, request: HttpRequest, tally: Tally, now: datetime | None) -> Iterator[tuple[Any, str]]:
        """Yield what is oldest, and how far a purge is behind. That and the size are those of the table, never estimated."""
        if tally.oldest_running:
            yield _("Oldest running"), span(timedelta(seconds=tally.oldest_running))
        if tally.by_status[DisplayStatus.ABANDONED.value]:
            yield _("Longest abandoned"), span(timedelta(seconds=tally.longest_lapsed))
        oldest = self.get_queryset(request).order_by("purge_at").values_list("purge_at", flat=True).first()
        if now is not None and oldest is not None:
            yield _("Purge is behind by"), span(max(now - oldest, timedelta(0)))
        with suppress(StoreUnavailable):
            store = self.get_store()
            due = store.count_due(limit=DUE)
            if due:
                yield _("To be purged"), f"{due:,}" if due < DUE else f"≥ {DUE:,}"
            if (size := store.size()) is not None:
                yield _("Size, with indexes"), filesizeformat(size)


def _shown(counts: Counter[str]) -> Counter[str]:
    """Return the counts by the statuses of the list, which shows a held record as completed."""
    shown = Counter(counts)
    shown[DisplayStatus.COMPLETED.value] += shown.pop(HELD, 0)
    return +shown


def _fact(row: IdempotencyRecord, record: Record) -> Fact:
    noted: str = getattr(row, "noted", "")
    failure = failure_in(outcome_of(row.response_status, noted, None)) if noted else None
    return Fact(
        created_at=record.created_at,
        completed_at=record.completed_at,
        response_status=None if failure else row.response_status,
        failed_at=None if failure is None else failure.at or record.created_at,
    )
