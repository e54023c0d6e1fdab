"""What other installed apps add to the admin of records: a section of a record's page, terms of the search, and changes."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from django.contrib.admin import AdminSite
from django.http import HttpRequest
from django.utils.safestring import SafeString

from ..inspection.interventions import Verb
from ..stores.base import BaseStore


class Panel(Protocol):
    """What one app adds. An app appends it to `PANELS` when its own admin is loaded."""

    def section(self, request: HttpRequest, record_id: UUID, site: AdminSite, store: BaseStore) -> SafeString:
        """Return the section of the page of a store's record; empty: nothing, or nothing that this user may see."""

    def find(self, request: HttpRequest, term: str) -> list[UUID]:
        """Return the ids of the records that a search term names, a bounded number; none: the term means something else."""


PANELS: list[Panel] = []
#: Changes by hand that have a page of their own, by name. The section of their app links to it.
ADDED_VERBS: dict[str, Verb] = {}
