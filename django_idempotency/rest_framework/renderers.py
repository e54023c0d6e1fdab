"""REST framework's browsable API, whose forms send an idempotency key."""

from __future__ import annotations

from typing import Any

from rest_framework.renderers import BrowsableAPIRenderer

from .. import conf


class IdempotentBrowsableAPIRenderer(BrowsableAPIRenderer):
    """The browsable API with a key on each unsafe request of its forms, kept for retries of an unchanged form."""

    template = "django_idempotency/browsable_api.html"

    def get_context(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the context of the template: REST framework's, and the name of the header."""
        return {**super().get_context(*args, **kwargs), "idempotency_header": conf.get("HEADER")}
