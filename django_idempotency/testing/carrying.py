"""Sends copies of a RequestFactory request through the project's whole handler."""

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
    """Return a function that sends a fresh copy of the request each time: a coroutine function for an async request.

    The copy keeps the user and the one that DRF was forced to use; the project's middleware sets everything else again.
    Raises `TypeError` for a request that was not made by a RequestFactory.
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
    """Give the copy the original's user.

    Uses private names because there is no public way: AuthenticationMiddleware sets its own user unless its cache has
    one, and DRF's `force_authenticate()` sets a forced user but cannot read the original's.
    """
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
    """Read a stream and close the response, without closing the database connections, which a TestCase still needs."""
    streamed = b"".join(response) if response.streaming else None
    request_finished.disconnect(close_old_connections)
    try:
        response.close()
    finally:
        request_finished.connect(close_old_connections)
    if streamed is None:
        return response
    return HttpResponse(streamed, status=response.status_code, headers=dict(response.items()))
