"""The page of suspects: rows of the project's models that may be one operation, done twice. It only reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from django.contrib.admin import AdminSite
from django.contrib.admin.utils import quote
from django.core.exceptions import PermissionDenied
from django.db import DatabaseError, models, transaction
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext_lazy as _

from ... import conf
from ...admin.panels import PAGES, Page
from ...inspection import redaction
from ...inspection.terminal import span
from .groups import Sighting, Suspect, suspects
from .searching import Unsearchable
from .sources import search_of

#: Rows of a source that are read, and how far back.
MOST_ROWS = 500
PERIOD = timedelta(hours=24)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of a group: its object and its key, each linked to its page if there is one that the viewer may see."""

    name: str
    url: str
    key: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    facts: Sequence[tuple[str, str]]
    span: str
    rows: Sequence[Row]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One entry of SUSPECTS, and what was found: at most `MOST_ROWS` rows."""

    title: str
    within: str = ""
    groups: Sequence[Group] = ()
    more: bool = False
    problem: str = ""


def suspects_view(of: Any, request: HttpRequest) -> HttpResponse:
    """Show the suspects of the last day in each source whose model the viewer may see. `of`: the records' model admin."""
    if not of.has_view_permission(request):
        raise PermissionDenied
    context = {
        **of.admin_site.each_context(request),
        "title": _("Suspects"),
        "opts": of.opts,
        "media": of.media,
        "sources": list(_sources(request, of.admin_site)),
        "most": MOST_ROWS,
    }
    request.current_app = of.admin_site.name
    return TemplateResponse(request, "admin/django_idempotency/idempotencyrecord/suspects.html", context)


def _sources(request: HttpRequest, site: AdminSite) -> Iterator[Source]:
    now = datetime.now(timezone.utc)
    for entry in conf.get("SUSPECTS"):
        try:
            search = search_of(entry, since=now - PERIOD, until=now)
        except Unsearchable as error:  # a check says so, too
            yield Source(title='IDEMPOTENCY["SUSPECTS"]', problem=str(error))
            continue
        opts = search.model._meta
        if not request.user.has_perm(f"{opts.app_label}.view_{opts.model_name}"):
            continue
        title, within = f"{opts.label}: {', '.join(search.same)}", span(search.within)
        try:
            with transaction.atomic(using=search.using):
                rows = search.rows(MOST_ROWS + 1)
        except (Unsearchable, DatabaseError) as error:
            yield Source(title=title, within=within, problem=" ".join(str(error).split()))
            continue
        found = suspects(rows[:MOST_ROWS], model=opts.label, names=search.same, since=search.since)
        groups = [_group(search.model, each, site) for each in found]
        yield Source(title=title, within=within, groups=groups, more=len(rows) > MOST_ROWS)


def _group(model: type[models.Model], suspect: Suspect, site: AdminSite) -> Group:
    facts = [(name, redaction.text(str(value))) for name, value in suspect.facts.items()]
    rows = [_row(model, row, site) for row in suspect.rows]
    return Group(facts=facts, span=span(suspect.span), rows=rows)


def _row(model: type[models.Model], row: Sighting, site: AdminSite) -> Row:
    name, url = "/".join(map(str, row.pk)), ""
    registered = model in site._registry  # noqa: SLF001 - is_registered() names no admin
    if registered and len(row.pk) == 1:
        try:
            opts = model._meta
            viewed = f"{site.name}:{opts.app_label}_{opts.model_name}_change"
            url = reverse(viewed, args=[quote(row.pk[0])])
        except NoReverseMatch:
            pass
    return Row(name=name, url=url, key="" if row.key is None else str(row.key), at=row.at)


PAGES.append(
    Page(name="suspects", title=_("Suspects"), view=suspects_view, is_offered=lambda: bool(conf.get("SUSPECTS")))
)
