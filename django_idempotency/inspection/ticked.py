"""An admin whose actions accept only valid primary keys: a manipulated form gets no traceback."""

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


class TickedAdmin(ModelAdmin):
    """Responds with 404 to an invalid primary key, with which Django would raise."""

    def response_action(self, request: HttpRequest, *given: Any, **named: Any) -> Any:
        for ticked in request.POST.getlist(helpers.ACTION_CHECKBOX_NAME):
            try:
                self.opts.pk.clean(ticked, None)
            except ValidationError as error:
                raise Http404 from error
        return super().response_action(request, *given, **named)
