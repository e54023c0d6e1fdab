"""An adapter for requests: `session.mount("https://api.stripe.com/",
IdempotentAdapter("stripe"))`.
"""

from __future__ import annotations

import http.client
import time
from io import BytesIO
from typing import Any

import requests
import urllib3
from requests.adapters import HTTPAdapter

from ...errors import ConfigurationError
from .exchange import Errors, Terms, exchange_for, shorter
from .messages import Answer, OutgoingRequest, wire_free
from .providers import provider

__all__ = ["IdempotentAdapter"]

#: The most that is read of a response at once (bytes).
PART = 64 * 1024


def _not_sent(error: Exception) -> bool:
    """Was no connection made? requests has one class for that and for a connection that broke; its
    reason has two.
    """
    reason = getattr(error.args[0], "reason", None) if error.args else None
    return isinstance(error, requests.exceptions.ConnectTimeout) or isinstance(
        reason, urllib3.exceptions.NewConnectionError
    )


_ERRORS = Errors(
    not_sent=_not_sent,
    broken=(
        requests.exceptions.ConnectionError,
        requests.exceptions.Timeout,
        requests.exceptions.ChunkedEncodingError,
    ),
)


class IdempotentAdapter(HTTPAdapter):
    """Gives each named call a key that is committed before it is sent, and retries it. See `Terms`
    for the options.

    `adapter` is what it sends with, an `HTTPAdapter()` by default. Cookies of a keyed response are
    not kept. Raises `ConfigurationError` for an adapter that retries by itself.
    """

    def __init__(self, provider: str, adapter: HTTPAdapter | None = None, **terms: Any) -> None:
        super().__init__()
        self._terms = Terms(provider=provider, **terms)
        self._wrapped = HTTPAdapter() if adapter is None else adapter
        own = getattr(self._wrapped, "max_retries", None)
        if own is not None and (own.total is None or own.total > 0):
            raise ConfigurationError(
                "The adapter would send again by itself, and that is not written down. Type "
                "HTTPAdapter(max_retries=0) and IdempotentAdapter(..., retries=3)."
            )

    def send(  # type: ignore[override]  # a session calls it with keywords
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        **how: Any,
    ) -> requests.Response:
        """Send a request, again if it makes sense, and return its response; or one that is
        stored.
        """
        exchange = exchange_for(self._terms, _ERRORS, _read(request))
        if exchange is None:
            return self._wrapped.send(request, stream=stream, timeout=timeout, **how)

        def send(key: str, left: float) -> Answer:
            request.headers.update(provider(self._terms.provider).headers(key, left))
            ends = time.monotonic() + left
            response = self._wrapped.send(
                request, stream=True, timeout=_shorter(timeout, left), **how
            )
            try:
                body = _body(response, ends)
            except urllib3.exceptions.HTTPError as error:
                raise requests.exceptions.ConnectionError(error, request=request) from error
            finally:
                response.close()
            return Answer(
                status=response.status_code,
                headers=wire_free(tuple(response.headers.items())),
                body=body,
            )

        return self._response(request, exchange.run(send))

    def close(self) -> None:
        super().close()
        self._wrapped.close()

    def _response(self, request: requests.PreparedRequest, answer: Answer) -> requests.Response:
        body = BytesIO(answer.body)
        headers = urllib3.HTTPHeaderDict(answer.headers)
        reason = http.client.responses.get(answer.status, "")
        raw = urllib3.HTTPResponse(
            body, headers, answer.status, reason=reason, preload_content=False
        )
        response = self.build_response(request, raw)
        response.idempotency = answer.facts  # type: ignore[attr-defined]
        return response


def _body(response: requests.Response, ends: float) -> bytes:
    """Read a response as it arrives, until the time that it has has ended."""
    body = bytearray()
    raw = response.raw
    # Since urllib3 2.1; without it a part is complete before the time is looked at.
    one = hasattr(raw, "read1")
    for part in (
        iter(lambda: raw.read1(PART, decode_content=True), b"")
        if one
        else response.iter_content(PART)
    ):
        body += part
        if time.monotonic() > ends:
            raise requests.exceptions.ReadTimeout(
                "The response was not complete when the deadline passed."
            )
    return bytes(body)


def _read(request: requests.PreparedRequest) -> OutgoingRequest:
    body: Any = request.body or b""
    if isinstance(body, str):
        body = body.encode()
    streamed = not isinstance(body, (bytes, bytearray))
    headers = tuple((name, _text(value)) for name, value in request.headers.items())
    method = request.method or "GET"
    url = request.url or ""
    body = b"" if streamed else bytes(body)
    return OutgoingRequest(method=method, url=url, headers=headers, body=body, streamed=streamed)


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _shorter(timeout: Any, left: float) -> Any:
    """Return a timeout, or a pair for connecting and reading, that is not longer than what is
    left.
    """
    if isinstance(timeout, tuple):
        return tuple(shorter(part, left) for part in timeout)
    return (
        shorter(timeout, left) if timeout is None or isinstance(timeout, (int, float)) else timeout
    )
