"""Transports for httpx: `httpx.Client(transport=IdempotentTransport("stripe"))`."""

from __future__ import annotations

from typing import Any, ClassVar

import httpx

from .httpx_transports import AsyncTransport, SyncTransport

__all__ = ["AsyncIdempotentTransport", "IdempotentTransport"]


class IdempotentTransport(SyncTransport, httpx.BaseTransport):
    """Gives each named call a key that is committed before it is sent, and retries it. See `Terms` for the options.

    `transport` is what it sends with, an `HTTPTransport()` by default.
    """

    library: ClassVar[Any] = httpx


class AsyncIdempotentTransport(AsyncTransport, httpx.AsyncBaseTransport):
    """See IdempotentTransport, for `httpx.AsyncClient`."""

    library: ClassVar[Any] = httpx
