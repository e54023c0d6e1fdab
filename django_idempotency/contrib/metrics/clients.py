"""Counts the requests of each client program, with a key and without: an alert then names the one
that sends none.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable
from typing import Any, ClassVar, Final

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

from ...api import Metric
from ...http.exchange import noted_of
from ...http.plan import EVERY_VIEW, plan_of
from ...instrumentation.meters import meters

logger = logging.getLogger("django_idempotency")

CLIENTS = Metric(
    "client.requests",
    "Requests to guarded routes by the program that sent them.",
    ("client", "route", "key"),
    unit="{request}",
)
#: What is not named.
OTHER: Final = "other"
#: A product's name at the beginning of User-Agent (RFC 9110 section 10.1.5).
_PRODUCT = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class ClientsMiddleware(MiddlewareMixin):
    """Counts, once its response is there, each request that a guard has counted. Put it anywhere in
    MIDDLEWARE.

    Anybody may write anything into User-Agent, so only the names in `known` are labels: extend it
    by your own clients', or override `client_of()` where you know your clients otherwise, such as
    by their API keys.
    """

    #: In lower case. "mozilla" are browsers.
    known: ClassVar[frozenset[str]] = frozenset(
        [
            "aiohttp",
            "apache-httpclient",
            "axios",
            "curl",
            "dart",
            "faraday",
            "go-http-client",
            "got",
            "guzzlehttp",
            "httpie",
            "java",
            "java-http-client",
            "ktor-client",
            "mozilla",
            "node",
            "node-fetch",
            "okhttp",
            "postmanruntime",
            "python",
            "python-httpx",
            "python-requests",
            "python-urllib",
            "reactornetty",
            "ruby",
            "undici",
            "wget",
        ]
    )

    get_response: Any

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        """Count the request after its response."""
        if self.async_mode:
            return self._acall(request)
        response: HttpResponseBase = self.get_response(request)
        self._counted(request)
        return response

    async def _acall(self, request: HttpRequest) -> HttpResponseBase:
        response: HttpResponseBase = await self.get_response(request)
        self._counted(request)
        return response

    def client_of(self, request: HttpRequest) -> str:
        """Name the client: one of as few names as a label may have.

        Called in the request's thread or event loop.
        """
        product = _PRODUCT.match(request.headers.get("User-Agent", ""))
        name = "" if product is None else product.group().lower()
        return name if name in self.known else OTHER

    def _counted(self, request: HttpRequest) -> None:
        """Count a request. What fails is logged: the response is there, and its work done."""
        try:
            self._count(request)
        except Exception:
            logger.exception("A request was not counted by its client.")

    def _count(self, request: HttpRequest) -> None:
        exchange = noted_of(request) if meters.active else None
        if exchange is None or exchange.source is None or not exchange.counted:
            return
        plan = exchange.plan or plan_of(EVERY_VIEW)
        is_keyed = exchange.operation is not None or plan.carries_key(request.META)
        route = exchange.source.route
        key = "sent" if is_keyed else "none"
        CLIENTS.record(client=self.client_of(request), route=route, key=key)
