"""The page and the JSON document of the project's policies."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils.cache import patch_cache_control, patch_vary_headers
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.http import condition

from ...core.hashing import request_digest
from ...errors import ConfigurationError
from .routes import guarded_methods

#: How long a client may keep the document before it asks again (seconds).
MAX_AGE = 300


def policies() -> list[dict[str, Any]]:
    """Return what is published of each guarded method of each route.

    Raises `ImproperlyConfigured`.
    """
    try:
        return [guarded.document for guarded in guarded_methods()]
    except (ValueError, ConfigurationError) as error:
        raise ImproperlyConfigured(f"IDEMPOTENCY: {error}") from error


def _etag(request: HttpRequest, *_: Any, **__: Any) -> str:
    request.idempotency_policies = found = policies()  # type: ignore[attr-defined]
    parts = (repr(found).encode(), str(wants_page(request)).encode())
    return f'"{request_digest(*parts).hex()[:32]}"'


def wants_page(request: HttpRequest) -> bool:
    """Does the client prefer a page for people? Programs get JSON."""
    return request.get_preferred_type(["application/json", "text/html"]) == "text/html"


class IdempotencyPolicyView(View):
    """What guards each route, as JSON, or as a page for a browser. For everyone: put a decorator
    around it otherwise.
    """

    http_method_names = ["get", "head", "options"]  # noqa: RUF012 - Django's own shape

    @method_decorator(condition(etag_func=_etag))
    def get(self, request: HttpRequest) -> HttpResponse:
        """Return the document."""
        found = request.idempotency_policies  # type: ignore[attr-defined]
        response: HttpResponse = (
            render(request, "django_idempotency/policies.html", {"policies": found})
            if wants_page(request)
            else JsonResponse({"policies": found})
        )
        patch_vary_headers(response, ["Accept"])
        patch_cache_control(response, public=True, max_age=MAX_AGE)
        return response
