"""What other installed apps add to the admin of records: sections of a record's page, search terms,
changes and pages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from django.contrib.admin import AdminSite
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.safestring import SafeString

from ..inspection.interventions import Verb
from ..stores.base import BaseStore


class Panel(Protocol):
    """What one app adds. An app appends it to `PANELS` when its own admin is loaded."""

    def section(
        self, request: HttpRequest, record_id: UUID, site: AdminSite, store: BaseStore
    ) -> SafeString:
        """Return the section of the page of a store's record; empty: nothing, or nothing that this
        user may see.
        """

    def find(self, request: HttpRequest, term: str) -> list[UUID]:
        """Return the ids of the records that a search term names, a bounded number; none: the term
        means something else.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page beside the list of records, which links to it. An app appends it to `PAGES`."""

    #: Of its address.
    name: str
    #: Translated, lazily.
    title: Any
    #: Called with the records' model admin and the request, for those who may see records.
    view: Callable[[Any, HttpRequest], HttpResponse]
    #: Is there something to show, so that the list links to it?
    is_offered: Callable[[], bool] = lambda: True


PANELS: list[Panel] = []
PAGES: list[Page] = []
#: Changes by hand that have a page of their own, by name. The section of their app links to it.
ADDED_VERBS: dict[str, Verb] = {}


def rendered(of: Any, request: HttpRequest, template: str, **context: Any) -> HttpResponse:
    """Return a page of the records' admin. `of` is their model admin."""
    request.current_app = of.admin_site.name
    path = f"admin/django_idempotency/idempotencyrecord/{template}.html"
    known = {**of.admin_site.each_context(request), "opts": of.opts, "media": of.media}
    return TemplateResponse(request, path, {**known, **context})
