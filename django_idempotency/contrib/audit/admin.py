"""The trail in Django's admin: read-only lists, and a section of a record's page."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.apps import apps
from django.contrib import admin
from django.contrib.admin import AdminSite
from django.core.paginator import Paginator
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext_lazy as _

from ...admin.links import change_url, linked
from ...admin.panels import PANELS
from ...admin.searching import parse
from ...api import BaseStore
from ...inspection import redaction
from ...inspection.read_only import ReadOnlyAdmin
from ...models import IdempotencyRecord
from .models import AuditEvent, Reference
from .rows import hashes_of, parsed, referring_to, said_of, shown, timeline_of

#: The most rows of a list that are counted, and so paged through.
COUNTED = 10_000
NOTHING = mark_safe("")


class TrailPanel:
    """The timeline and the references on a record's page, and the search for `payment:17`."""

    def section(
        self, request: HttpRequest, record_id: UUID, site: AdminSite, store: BaseStore
    ) -> SafeString:
        if not request.user.has_perm("idempotency_audit.view_auditevent"):
            return NOTHING
        known = timeline_of(record_id)
        context = {
            "events": [
                (event, *said_of(event.event), redaction.text(event.request))
                for event in known.events
            ],
            "cut": known.cut,
            "references": [
                (each, reference_link(each, request, site)) for each in known.references
            ],
        }
        return render_to_string("admin/idempotency_audit/timeline.html", context, request)

    def find(self, request: HttpRequest, term: str) -> list[UUID]:
        named = parsed(term)
        if named is None or not request.user.has_perm("idempotency_audit.view_reference"):
            return []
        return [found.record for found in referring_to(*named)]


PANELS.append(TrailPanel())


def model_of(kind: str) -> type[Model] | None:
    """Return the model that a kind names, such as "payments.charge"."""
    try:
        return apps.get_model(kind)
    except (LookupError, ValueError):
        return None


def reference_link(reference: Reference, request: HttpRequest, site: AdminSite) -> SafeString:
    """Return a reference's value, as a link where its kind names a model with an admin that the
    viewer may open.
    """
    model = model_of(reference.kind)
    return linked(
        reference.value, "" if model is None else change_url(site, model, reference.value, request)
    )


class BoundedPaginator(Paginator):  # type: ignore[type-arg]
    """Pages through the first `COUNTED` rows: to count all of them would read the table."""

    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list
        return int(rows[:COUNTED].count())


class TrailAdmin(ReadOnlyAdmin):
    """A list that nobody changes, newest first, and counted only so far."""

    paginator = BoundedPaginator
    ordering = ("-pk",)
    sortable_by = ()
    list_per_page = 50
    actions = None
    search_fields = ("pk",)  # shows the search bar; get_search_results() searches

    class Media:
        css = {"all": ("django_idempotency/admin.css",)}  # noqa: RUF012 - Django's own shape

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip()
        return (queryset.filter(self.named(term)) if term else queryset), False

    def named(self, term: str) -> Q:
        """Return what a search term finds."""
        raise NotImplementedError

    @admin.display(description=_("key and scope"))
    def whose(self, row: Any) -> SafeString:
        shown = format_html('<code>{}</code><br><span class="quiet">{}</span>', row.key, row.scope)
        return linked(shown, change_url(self.admin_site, IdempotencyRecord, row.record))


@admin.register(AuditEvent)
class AuditEventAdmin(TrailAdmin):
    list_display = ("at", "label", "attempt", "outcome", "request", "actor_shown", "whose")
    list_display_links = ("at",)
    fields = (
        "at",
        "label",
        "attempt",
        "outcome",
        "request",
        "owner",
        "actor_shown",
        "request_id_shown",
        "reason_shown",
        "whose",
    )
    readonly_fields = ("label", "actor_shown", "request_id_shown", "reason_shown", "whose")
    search_help_text = _(
        "Scope and key, separated by a space (“user:auth.user:7 order-42”), or a record's id."
    )

    def named(self, term: str) -> Q:
        return Q(record__in=parse(term).ids())

    @admin.display(description=_("event"))
    def label(self, row: AuditEvent) -> SafeString:
        meaning, colour = said_of(row.event)
        return format_html(
            '<span class="idempotency-label {}" title="{}">{}</span>', colour, meaning, row.event
        )

    @admin.display(description=_("actor"), empty_value="-")
    def actor_shown(self, row: AuditEvent) -> str | None:
        return shown(row).actor or None

    @admin.display(description=_("request id"), empty_value="-")
    def request_id_shown(self, row: AuditEvent) -> str | None:
        return shown(row).request_id or None

    @admin.display(description=_("reason"), empty_value="-")
    def reason_shown(self, row: AuditEvent) -> str | None:
        return shown(row).reason or None


@admin.register(Reference)
class ReferenceAdmin(TrailAdmin):
    list_display = ("value_shown", "kind", "whose", "at")
    list_display_links = ("value_shown",)
    fields = ("value_shown", "kind", "whose", "operation", "at")
    readonly_fields = ("value_shown", "whose")
    search_help_text = _("A reference with its kind (“payment:17”), or its value alone.")

    def named(self, term: str) -> Q:
        found = Q(value_hash__in=hashes_of(term))
        named = parsed(term)
        return (
            found if named is None else found | Q(kind=named[0], value_hash__in=hashes_of(named[1]))
        )

    @admin.display(description=_("value"))
    def value_shown(self, row: Reference) -> str:
        return shown(row).value
