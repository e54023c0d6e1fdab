"""The page of suspects: rows of the project's models that may be one operation, done twice.

It only reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

from django.contrib.admin import AdminSite
from django.db import DatabaseError, models, transaction
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext_lazy as _

from ...admin.links import change_url, linked
from ...admin.panels import PAGES, Page, rendered
from ...api import setting
from ...inspection import redaction
from ...inspection.terminal import span
from .searching import Suspect, Unsearchable, search_of, suspects

#: Rows of a source that are read, and how far back.
MOST_ROWS = 500
PERIOD = timedelta(hours=24)


def suspects_view(of: Any, request: HttpRequest) -> HttpResponse:
    """Show the suspects of the last day in each source whose model the viewer may see.

    `of`: the records' model admin.
    """
    sources = list(_sources(request, of.admin_site))
    return rendered(of, request, "suspects", title=_("Suspects"), sources=sources, most=MOST_ROWS)


def _sources(request: HttpRequest, site: AdminSite) -> Iterator[dict[str, Any]]:
    """Yield what the page shows of each entry of SUSPECTS: at most `MOST_ROWS` rows, in groups."""
    now = datetime.now(timezone.utc)
    for entry in setting("SUSPECTS"):
        try:
            search = search_of(entry, since=now - PERIOD, until=now)
        except Unsearchable as error:  # a check says so, too
            yield {"title": 'IDEMPOTENCY["SUSPECTS"]', "problem": error}
            continue
        opts = search.model._meta
        if not request.user.has_perm(f"{opts.app_label}.view_{opts.model_name}"):
            continue
        shown = {"title": f"{opts.label}: {', '.join(search.same)}", "within": span(search.within)}
        try:
            with transaction.atomic(using=search.using):
                rows = search.rows(MOST_ROWS + 1)
        except (Unsearchable, DatabaseError) as error:
            yield {**shown, "problem": " ".join(str(error).split())}
            continue
        found = suspects(rows[:MOST_ROWS], model=opts.label, names=search.same, since=search.since)
        groups = [_group(search.model, each, request, site) for each in found]
        yield {**shown, "groups": groups, "more": len(rows) > MOST_ROWS}


def _group(
    model: type[models.Model], suspect: Suspect, request: HttpRequest, site: AdminSite
) -> dict[str, Any]:
    """Return a group's facts, masked, and its rows: each linked to its page if there is one that
    the viewer may see.
    """
    rows = []
    for row in suspect.rows:
        url = change_url(site, model, row.pk[0], request) if len(row.pk) == 1 else ""
        rows.append((linked("/".join(map(str, row.pk)), url), row.at, row.key))
    facts = [(name, redaction.text(str(value))) for name, value in suspect.facts.items()]
    return {"facts": facts, "span": span(suspect.span), "rows": rows}


PAGES.append(
    Page(
        name="suspects",
        title=_("Suspects"),
        view=suspects_view,
        is_offered=lambda: bool(setting("SUSPECTS")),
    )
)
