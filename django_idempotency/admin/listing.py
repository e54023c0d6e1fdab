"""A list that stays fast at five million rows: ordered and windowed by the one index, and never
counted.

- A page reads one row more than it shows, to know whether there is another page. Nothing is
  counted.
- Filters and a search without a key look at no more than the first `SCANNED` rows of the window.
- A search for a scope and a key, or for a `key_hash`, uses the primary key, whatever the window and
  the filters.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import PAGE_VAR, ChangeList
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone as django_timezone
from django.utils.translation import gettext_lazy as _

from ..core.records import CANCELLATION, HELD, UNDONE, Guarantee, Outcome, Status
from ..core.states import ATOMIC_PATIENCE, RecordState
from ..inspection.beginnings import beginning, by_primary_key
from ..inspection.status import DISPLAYS, STATUSES
from ..models import IdempotencyRecord
from .panels import PANELS
from .searching import Search, parse

#: Rows that a filter or a search reads: some 30 ms when they are in memory.
SCANNED = 20_000
#: The deepest row that a page may start at: OFFSET walks all rows before it.
DEEPEST = 10_000

Records = QuerySet[IdempotencyRecord]
Choices = list[tuple[str, Any]]

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[IdempotencyRecord]
else:
    ModelAdmin = admin.ModelAdmin


class RetentionFilter(admin.SimpleListFilter):
    """The window. It uses the index on `purge_at`, which also orders the list."""

    title = _("kept until")
    parameter_name = "kept"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin) -> Choices:
        return [
            ("hour", _("Within an hour")),
            ("today", _("Today")),
            ("week", _("Within 7 days")),
            ("past", _("Past")),
            ("all", _("All")),
        ]

    def queryset(self, request: HttpRequest, queryset: Records) -> Records:
        now = datetime.now(timezone.utc)
        midnight = django_timezone.localtime(now).replace(
            hour=0, minute=0, second=0, microsecond=0
        ) + timedelta(days=1)
        match self.value():
            case "all":
                return queryset
            case "past":
                return queryset.filter(purge_at__lte=now)
            case window:
                ends = {
                    "hour": now + timedelta(hours=1),
                    "today": midnight,
                    "week": now + timedelta(days=7),
                }
                queryset = queryset.filter(purge_at__gt=now)
                return queryset.filter(purge_at__lte=ends[window]) if window in ends else queryset

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        default, *others = super().choices(changelist)
        yield {**default, "display": _("Still kept")}
        yield from others


class StateFilter(admin.SimpleListFilter):
    """The states that labels name."""

    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin) -> Choices:
        return [(state.value, shown.label) for state, shown in DISPLAYS.items()]

    def queryset(self, request: HttpRequest, queryset: Records) -> Records:
        value = self.value()
        if value not in STATUSES:
            return queryset
        return queryset.filter(in_state(RecordState(value), datetime.now(timezone.utc)))


def in_state(state: RecordState, now: datetime) -> Q:
    """Return what finds the records in a state: what `core.states` reads of one, in columns."""
    free = Q(status=Status.FREE.value)
    running = Q(status=Status.RUNNING.value)
    done = Q(status=Status.COMPLETED.value)
    leased = Q(lease_until__gt=now)
    waited_for = Q(guarantee=Guarantee.ATOMIC.value, lease_until__gt=now - ATOMIC_PATIENCE)
    held = _marked(HELD)
    cancelled = _marked(CANCELLATION) | _marked(UNDONE)
    expired = Q(expires_at__lte=now) & ~(running & leased)
    found = {
        RecordState.FREE: free & Q(digest=b""),
        RecordState.FAILED: free & ~Q(digest=b""),
        RecordState.RUNNING: running & (leased | waited_for),
        RecordState.ABANDONED: running & ~(leased | waited_for),
        RecordState.COMPLETED: done & ~held & ~cancelled,
        RecordState.HELD: done & held,
        RecordState.CANCELLED: done & cancelled,
    }
    return expired if state is RecordState.EXPIRED else found[state] & ~expired


def _marked(outcome: Outcome) -> Q:
    """Find the records whose headers begin with a mark that no response has."""
    mark = json.dumps(outcome.headers[0])
    return Q(response_status=outcome.status, response_headers__contains=mark)


class RecordChangeList(ChangeList):
    #: Did a filter or a search read only part of the window?
    cut = False
    #: Did a search look at the window only, and not at one record by its primary key?
    windowed = False
    #: What was searched, if anything.
    searched: Search | None = None

    def get_ordering(self, request: HttpRequest, queryset: Records) -> list[Any]:
        """Return the order of the index, and before it that of the last change, if it is asked for:
        then the first `SCANNED` rows of the window are sorted. Any other would sort the table.
        """
        by_change = [
            each for each in super().get_ordering(request, queryset) if not isinstance(each, str)
        ]
        self.resorted = bool(by_change)
        return [*by_change, "-purge_at", "-pk"]

    def get_queryset(
        self, request: HttpRequest, exclude_parameters: list[str | None] | None = None
    ) -> Records:
        queryset = (
            super()
            .get_queryset(request, exclude_parameters)
            .defer("response_headers", "response_body")
        )
        typed = self.query.strip()
        searched = parse(typed) if typed else None
        self.searched = searched
        if searched is not None:
            ids = searched.ids() or [
                name for panel in PANELS for name in panel.find(request, typed)
            ]
            found = self.root_queryset.filter(pk__in=ids) if ids else self._begun(searched)
            if found is not None and found.exists():
                return found.defer("response_headers", "response_body")
            self.windowed = True
            queryset = queryset.filter(searched.condition())
        filtered = searched is not None or set(self.get_filters_params()) - {"kept"}
        return self._bounded(request, queryset) if filtered or self.resorted else queryset

    def _begun(self, searched: Search) -> Records | None:
        """Return the records whose ids begin with what was searched, where the primary key finds
        them.
        """
        digits = "" if searched.facts else beginning(searched.term)
        return by_primary_key(self.root_queryset, digits) if digits else None

    def _bounded(self, request: HttpRequest, queryset: Records) -> Records:
        """Limit a queryset to the first `SCANNED` rows of the window.

        Their end is read from the index alone.
        """
        window = self.root_queryset
        for spec in self.filter_specs:
            if isinstance(spec, RetentionFilter):
                window = spec.queryset(request, window)
        deadlines = window.order_by("-purge_at").values_list("purge_at", flat=True)
        edge = list(deadlines[SCANNED - 1 : SCANNED])
        self.cut = bool(edge)
        self.scanned = SCANNED
        return queryset.filter(purge_at__gte=edge[0]) if edge else queryset

    def get_results(self, request: HttpRequest) -> None:
        """Read a page and one more row, and the users of the page by one more query.

        The result count is that of the page: no action selects across pages.
        """
        first = (self.page_num - 1) * self.list_per_page
        if not 0 <= first < DEEPEST:
            raise IncorrectLookupParameters
        rows = list(self.queryset[first : first + self.list_per_page + 1])
        self.result_list = rows[: self.list_per_page]
        # Our own admin.
        self.model_admin.name_people(request, self.result_list)  # type: ignore[attr-defined]
        self.first_shown = first + 1 if rows else 0
        self.last_shown = first + len(self.result_list)
        older = first + self.list_per_page
        more = len(rows) > self.list_per_page
        self.deepest = more and older >= DEEPEST
        self.older_url = self._page(self.page_num + 1) if more and not self.deepest else ""
        self.newer_url = self._page(self.page_num - 1) if first else ""
        self.result_count = self.full_result_count = len(self.result_list)
        self.show_full_result_count = False
        self.show_admin_actions = bool(rows)
        self.can_show_all = self.multi_page = False

    def _page(self, number: int) -> str:
        return self.get_query_string({PAGE_VAR: number})
