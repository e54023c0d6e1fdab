"""Transports for httpx2: `httpx2.Client(transport=IdempotentTransport("stripe"))`."""

from __future__ import annotations

from typing import Any, ClassVar

import httpx2

from .httpx_transports import AsyncTransport, SyncTransport

__all__ = ["AsyncIdempotentTransport", "IdempotentTransport"]


class IdempotentTransport(SyncTransport, httpx2.BaseTransport):
    """Gives each named call a key that is committed before it is sent, and retries it. See `Terms` for the options.

    `transport` is what it sends with, an `HTTPTransport()` by default.
    """

    library: ClassVar[Any] = httpx2


class AsyncIdempotentTransport(AsyncTransport, httpx2.AsyncBaseTransport):
    """See IdempotentTransport, for `httpx2.AsyncClient`."""

    library: ClassVar[Any] = httpx2
