"""A request made by a RequestFactory, carried through the project's whole handler, as often as a test likes."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

from django.core.handlers.asgi import ASGIRequest
from django.core.handlers.base import BaseHandler
from django.core.handlers.wsgi import WSGIRequest
from django.core.signals import request_finished
from django.db import close_old_connections
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase


def carried(request: HttpRequest) -> Callable[[], Any]:
    """Return a function that answers a fresh copy of the request each time: a coroutine function for an async request.

    The request keeps its user and DRF's forced one; all else on it is for the project's middleware to set anew.
    Raises `TypeError` for a request that no RequestFactory made.
    """
    if not isinstance(request, (ASGIRequest, WSGIRequest)):
        raise TypeError("A request comes from RequestFactory or AsyncRequestFactory: a bare HttpRequest has no body.")
    body, handler = request.body, BaseHandler()
    if isinstance(request, ASGIRequest):
        handler.load_middleware(is_async=True)

        async def aanswer() -> HttpResponseBase:
            copy = _as(request, ASGIRequest(request.scope, BytesIO(body)))
            return _closed(await handler.get_response_async(copy))

        return aanswer
    handler.load_middleware()

    def answer() -> HttpResponseBase:
        environ = {**request.environ, "wsgi.input": BytesIO(body), "CONTENT_LENGTH": str(len(body))}
        return _closed(handler.get_response(_as(request, WSGIRequest(environ))))

    return answer


def _as(request: Any, copy: Any) -> Any:
    """Let the copy come from the same user: AuthenticationMiddleware takes the cached one, DRF the forced one."""
    copy._dont_enforce_csrf_checks = True  # noqa: SLF001 - as the test client does
    user = getattr(request, "user", None)
    if user is not None:
        copy.user = copy._cached_user = copy._acached_user = user  # noqa: SLF001
        if user.is_authenticated and "HTTP_AUTHORIZATION" not in request.META:
            copy._force_auth_user = user  # noqa: SLF001
    for name in ("_force_auth_user", "_force_auth_token"):
        if hasattr(request, name):
            setattr(copy, name, getattr(request, name))
    return copy


def _closed(response: HttpResponseBase) -> HttpResponseBase:
    """Read a stream and close the response, without what Django does then: close the connection of a TestCase."""
    streamed = b"".join(response) if response.streaming else None
    request_finished.disconnect(close_old_connections)
    try:
        response.close()
    finally:
        request_finished.connect(close_old_connections)
    if streamed is None:
        return response
    return HttpResponse(streamed, status=response.status_code, headers=dict(response.items()))
