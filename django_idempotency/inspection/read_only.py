"""An admin whose rows nobody adds, changes or deletes by a form; its actions may."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin import helpers
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]
else:
    ModelAdmin = admin.ModelAdmin


class ReadOnlyAdmin(ModelAdmin):
    """Shows rows. A manipulated form or URL gets no traceback, and finds nothing by a lookup that
    is not allowed.
    """

    show_full_result_count = False
    #: The lookups of the filters. Any other might scan the table, or reveal what is masked.
    lookups: tuple[str, ...] = ()

    def _never(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    has_add_permission = has_change_permission = has_delete_permission = _never

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        return lookup in self.lookups

    def response_action(self, request: HttpRequest, *given: Any, **named: Any) -> Any:
        """Respond with 404 to an invalid primary key, with which Django would raise."""
        for ticked in request.POST.getlist(helpers.ACTION_CHECKBOX_NAME):
            try:
                self.opts.pk.clean(ticked, None)
            except ValidationError as error:
                raise Http404 from error
        return super().response_action(request, *given, **named)
