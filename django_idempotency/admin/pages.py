"""The admin pages of `IdempotencyRecord`: a list and a detail page, both read-only.

The list is a queryset, as every list of Django's admin: it filters, orders and pages by columns,
and one statement reads a page of it. On the page of one record, the status, what a request would
get, and the response are what the store reads. Its plain columns are the row's, which Django needs
for permissions, the history and the log.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.contrib.admin.utils import flatten_fieldsets
from django.core.exceptions import PermissionDenied
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext_lazy as _

from .. import conf
from ..core.failures import response_of
from ..core.records import Record, Status
from ..errors import RecordUnreadable, StoreUnavailable
from ..inspection.interventions import VERBS
from ..inspection.read_only import ReadOnlyAdmin
from ..inspection.responses import shown
from ..models import IdempotencyRecord
from ..runtime.registry import stores
from ..stores.base import BaseStore
from ..stores.orm import ORMStore
from ..stores.orm.clock import Clock
from .columns import Columns, failure_of, noting
from .interventions import may, on_page, on_ticked
from .links import people
from .listing import RecordChangeList, Records, RetentionFilter, StateFilter
from .panels import ADDED_VERBS, PAGES, PANELS, Page


@admin.register(IdempotencyRecord)
class IdempotencyRecordAdmin(Columns, ReadOnlyAdmin):
    """Shows the records of one store. To show another, register a subclass with its
    `store_alias`.
    """

    #: An alias of IDEMPOTENCY["STORES"]; None: the first that keeps its records in a Django
    #: database.
    store_alias: str | None = None

    list_display = ("identity", "state_and_guarantee", "answer", "request", "life")
    list_display_links = ("identity",)
    list_filter = (RetentionFilter, StateFilter, "guarantee")
    lookups = ("kept", "state", "guarantee__exact")
    list_per_page = 50
    sortable_by = ("life",)
    show_facets = admin.ShowFacets.NEVER  # each would count the table
    search_fields = ("key",)  # shows the search bar; how it searches: listing.py
    search_help_text = _(
        "The name of a user or a scope, and a key, separated by a space (“alice "
        "order-42”), a record's id, or the "
        "key_hash of a log line: found at once among all records. One of them alone, the "
        "id of a request (Original-Request), status:402, status:5xx, "
        "error:CardDeclined or location:/charges/7/: searched among the newest records of "
        "the window that is chosen."
    )
    fieldsets = (
        (_("Now"), {"fields": ("state", "next_request", "principal", "whole_key", "request")}),
        (
            _("History"),
            {"fields": ("attempt", "created", "done", "failed", "ends", "original_request")},
        ),
        (
            _("Technical"),
            {
                "classes": ("collapse",),
                "fields": (
                    "id",
                    "guarantee",
                    "fingerprint",
                    "leased",
                    "kept",
                    "owner",
                    "operation",
                    "secret_id",
                ),
            },
        ),
    )

    class Media:
        css = {"all": ("django_idempotency/admin.css",)}  # noqa: RUF012 - Django's own shape

    # --------------------------------------------------------------------------- store and queryset

    @property
    def alias(self) -> str:
        """The alias of the store whose records are shown.

        If no store has rows, the table of the default database is.
        """
        aliases = conf.get("STORES") if self.store_alias is None else [self.store_alias]
        found = (
            alias
            for alias in sorted(aliases, key=lambda alias: alias != "default")
            if stores[alias].rows_in
        )
        return next(found, "")

    def get_store(self) -> BaseStore:
        """Return the store whose records are shown, with every layer around it."""
        return stores.outermost(stores[self.alias]) if self.alias else ORMStore()

    def get_queryset(self, request: HttpRequest) -> Records:
        """Return the records of the store's database, each with that database's current time."""
        using = self.get_store().rows_in or DEFAULT_DB_ALIAS
        return super().get_queryset(request).using(using).annotate(read_at=Clock(), noted=noting())

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[RecordChangeList]:
        return RecordChangeList

    def get_search_results(
        self, request: HttpRequest, queryset: Records, search_term: str
    ) -> tuple[Records, bool]:
        return queryset, False  # RecordChangeList searches

    @property
    def offered_pages(self) -> list[Page]:
        """The pages of other apps that the list links to."""
        return [page for page in PAGES if page.is_offered()]

    def get_actions(self, request: HttpRequest, action_location: Any = None) -> dict[str, Any]:
        """Return those of the site, and on the list the changes by hand that this user may make.

        `action_location` is Django 6.1's; the page of a record has buttons for them.
        """
        found = super().get_actions(
            request, **({} if action_location is None else {"action_location": action_location})
        )
        if getattr(action_location, "name", "CHANGE_LIST") != "CHANGE_LIST":
            return found
        allowed = {
            f"{verb.name}_records": verb for verb in VERBS.values() if may(self, request, verb)
        }
        ours = {
            name: (partial(on_ticked, verb=verb), name, verb.action)
            for name, verb in allowed.items()
        }
        return {**found, **ours}

    def intervention_view(self, request: HttpRequest, record_id: UUID, name: str) -> HttpResponse:
        """Ask for confirmation for one record, or change it (POST)."""
        return on_page(self, request, record_id, {**VERBS, **ADDED_VERBS}[name])

    def page_view(self, request: HttpRequest, name: str) -> HttpResponse:
        """Show a page beside the list."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        return next(page for page in PAGES if page.name == name).view(self, request)

    def get_urls(self) -> list[URLPattern]:
        # Partials of methods that hold nothing but text: so the middleware knows what stands before
        # a replay.
        views = {
            f"<uuid:record_id>/{name}/": (name, partial(self.intervention_view, name=name))
            for name in (*VERBS, *ADDED_VERBS)
        }
        views |= {
            f"{page.name}/": (page.name, partial(self.page_view, name=page.name)) for page in PAGES
        }
        named = f"{self.opts.app_label}_{self.opts.model_name}"
        pages = [
            path(address, self.admin_site.admin_view(view), name=f"{named}_{name}")
            for address, (name, view) in views.items()
        ]
        urls = [*pages, *super().get_urls()]
        # No transaction around the request: an intervention has its own, a short one.
        for url in urls:
            for alias in connections:
                transaction.non_atomic_requests(using=alias)(url.callback)
        return urls

    # ---------------------------------------------------------------------------------- record page

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> IdempotencyRecord | None:
        """Return a row that this admin shows, with the record that the store reads; `None` if there
        is none.
        """
        row = super().get_object(request, object_id, from_field)
        if row is None:
            return None
        record: Record | None = None
        with suppress(RecordUnreadable):
            record = self.get_store().get(row.pk)
            if record is None:  # deleted since the row was read
                return None
        if conf.get("COUNT_REPLAYS"):
            with suppress(StoreUnavailable):
                # As below.
                row.repeats = self.get_store().repeats(row.pk)  # type: ignore[attr-defined]
        # For the columns, as an annotation of a queryset.
        row.record = record  # type: ignore[attr-defined]
        self.name_people(request, [row])
        return row

    def name_people(self, request: HttpRequest, rows: Iterable[IdempotencyRecord]) -> None:
        """Set `person` on the rows whose scope names a user who exists."""
        found = people({row.scope for row in rows}, request, self.admin_site)
        for row in rows:
            row.person = found.get(row.scope, "")  # type: ignore[attr-defined]  # as above

    def get_fieldsets(self, request: HttpRequest, obj: IdempotencyRecord | None = None) -> Any:
        """Return the groups of facts: with a failure if there was one, and what was counted if the
        project counts.
        """
        (now, shown), (history, named), *rest = self.fieldsets
        fields = [name for name in named["fields"] if name != "failed" or (obj and failure_of(obj))]
        if conf.get("COUNT_REPLAYS"):
            fields.append("repeated")
        return ((now, shown), (history, {**named, "fields": fields}), *rest)

    def get_readonly_fields(
        self, request: HttpRequest, obj: IdempotencyRecord | None = None
    ) -> list[str]:
        return flatten_fieldsets(self.get_fieldsets(request, obj))

    def render_change_form(  # noqa: PLR0917 - Django's own shape
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: IdempotencyRecord | None = None,
    ) -> HttpResponse:
        body_allowed = request.user.has_perm(f"{self.opts.app_label}.view_response")
        record = self.read(obj) if obj else None
        outcome = response_of(record) if record else None
        context["response"] = shown(outcome, body_allowed=body_allowed)
        context["unreadable"] = outcome is None and (
            record is None or record.status is Status.COMPLETED
        )
        context["verbs"] = [verb for verb in VERBS.values() if may(self, request, verb)]
        store = self.get_store()
        found = (
            [panel.section(request, obj.pk, self.admin_site, store) for panel in PANELS]
            if obj
            else []
        )
        context["panels"] = [section for section in found if section]
        return super().render_change_form(request, context, add, change, form_url, obj)
