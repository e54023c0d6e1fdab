"""Clients of httpx whose calls outlive their process: `IdempotentClient("stripe", base_url=...)`.

They wrap a client's `send()`, not its transport: the request that was meant comes through there
once, and what httpx makes of it does not, such as an auth flow's request for a token. So the name
is the request's own, whichever transport, proxy or mount carries it.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import fields
from datetime import timedelta
from typing import Any

import httpx

from .exchange import Errors, Exchange, Terms, exchange_for, shorter
from .messages import Answer, OutgoingRequest, wire_free
from .providers import provider

__all__ = ["AsyncIdempotentClient", "IdempotentClient"]

#: The extension of a request that names its call, and of a response that says how it went.
EXTENSION = "idempotency"
_TERMS = frozenset(field.name for field in fields(Terms))
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_ERRORS = Errors(
    not_sent=lambda error: isinstance(error, _NOT_SENT),
    broken=(httpx.NetworkError, httpx.TimeoutException, httpx.RemoteProtocolError),
)


class IdempotentClient(httpx.Client):
    """Gives each named call a key that is committed before it is sent, and retries it.

    `options` are those of `Terms`, and of `httpx.Client`. A redirect of a named call is not
    followed.
    """

    def __init__(self, provider: str, **options: Any) -> None:
        self._terms, options = _split(provider, options)
        super().__init__(**options)

    def send(self, request: httpx.Request, **how: Any) -> httpx.Response:
        """Send a request, again if it makes sense, and return its response; or one that is
        stored.
        """
        exchange = _exchange_for(self._terms, request)
        send = super().send
        if exchange is None:
            return send(request, **how)
        how = {**how, "stream": True, "follow_redirects": False}

        def attempt(key: str, left: float) -> Answer:
            _prepare(request, self._terms, key, left)
            ends = time.monotonic() + left
            response = send(request, **how)
            body = bytearray()
            try:
                for part in response.iter_bytes():
                    body += part
                    if time.monotonic() > ends:
                        raise _late(request)
            finally:
                response.close()
            return _answer(response, bytes(body))

        return _response(request, exchange.run(attempt), exchange)


class AsyncIdempotentClient(httpx.AsyncClient):
    """See IdempotentClient, for asyncio."""

    def __init__(self, provider: str, **options: Any) -> None:
        self._terms, options = _split(provider, options)
        super().__init__(**options)

    async def send(self, request: httpx.Request, **how: Any) -> httpx.Response:
        """See IdempotentClient.send()."""
        exchange = _exchange_for(self._terms, request)
        send = super().send
        if exchange is None:
            return await send(request, **how)
        how = {**how, "stream": False, "follow_redirects": False}

        async def attempt(key: str, left: float) -> Answer:
            _prepare(request, self._terms, key, left)
            try:
                response = await asyncio.wait_for(send(request, **how), left)
            except (TimeoutError, asyncio.TimeoutError) as error:  # two classes before Python 3.11
                raise _late(request) from error
            return _answer(response, response.content)

        return _response(request, await exchange.arun(attempt), exchange)


def _split(provider: str, options: dict[str, Any]) -> tuple[Terms, dict[str, Any]]:
    """Return our options, and those of httpx."""
    ours = {name: options[name] for name in _TERMS & options.keys()}
    return Terms(provider=provider, **ours), {
        name: value for name, value in options.items() if name not in _TERMS
    }


def _exchange_for(terms: Terms, request: httpx.Request) -> Exchange | None:
    return exchange_for(terms, _ERRORS, _read(request), request.extensions.get(EXTENSION))


def _read(request: httpx.Request) -> OutgoingRequest:
    headers = tuple(request.headers.multi_items())
    url = str(request.url)
    try:
        return OutgoingRequest(
            method=request.method, url=url, headers=headers, body=request.content
        )
    except httpx.RequestNotRead:
        return OutgoingRequest(
            method=request.method, url=url, headers=headers, body=b"", streamed=True
        )


def _prepare(request: httpx.Request, terms: Terms, key: str, left: float) -> None:
    """Give an attempt its key and its deadline, and no more time than is left."""
    request.headers.update(provider(terms.provider).headers(key, left))
    given = request.extensions.get("timeout", {})
    timeout = {
        part: shorter(given.get(part), left) for part in ("connect", "read", "write", "pool")
    }
    request.extensions = {**request.extensions, "timeout": timeout}


def _late(request: httpx.Request) -> httpx.ReadTimeout:
    return httpx.ReadTimeout(
        "The response was not complete when the deadline passed.", request=request
    )


def _answer(response: httpx.Response, body: bytes) -> Answer:
    return Answer(
        status=response.status_code,
        headers=wire_free(tuple(response.headers.multi_items())),
        body=body,
    )


def _response(request: httpx.Request, answer: Answer, exchange: Exchange) -> httpx.Response:
    """Return a response of httpx: the same one for a new and for a stored answer."""
    stream = httpx.ByteStream(answer.body)
    said = {EXTENSION: answer.facts}
    headers = list(answer.headers)
    response = httpx.Response(
        answer.status, headers=headers, stream=stream, request=request, extensions=said
    )
    response.read()
    response.elapsed = timedelta(seconds=exchange.took())
    return response
