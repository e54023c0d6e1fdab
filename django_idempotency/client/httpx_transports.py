"""Transports around a transport, written once for httpx and httpx2, whose names are the same."""

from __future__ import annotations

from typing import Any, ClassVar

from ..core.outgoing import SAFE_METHODS
from ..errors import CallWithoutName, StreamedRequest
from .exchange import Errors, Exchange, Terms
from .messages import Answer, OutgoingRequest, wire_free
from .names import name_of
from .providers import provider

#: The extension of a request that names its call, and of a response that says how it went.
EXTENSION = "idempotency"


class Transports:
    """What the sync and the async transport share. `library` is httpx or httpx2."""

    library: ClassVar[Any]
    terms: Terms

    def exchange_for(self, request: Any) -> Exchange | None:
        """Return the call that a request makes; `None`: it passes as it is, and once.

        Raises `CallWithoutName`, `StreamedRequest`, and what `name_of()` raises.
        """
        if request.method in SAFE_METHODS:
            return None
        header = provider(self.terms.provider).header
        name = name_of(request.extensions.get(EXTENSION), request.headers.get(header))
        if name is None:
            if self.terms.require_names:
                raise CallWithoutName
            return None
        not_sent = (self.library.ConnectError, self.library.ConnectTimeout, self.library.PoolTimeout)
        errors = Errors(
            not_sent=lambda error: isinstance(error, not_sent),
            broken=(self.library.NetworkError, self.library.TimeoutException, self.library.RemoteProtocolError),
        )
        return Exchange(self.terms, errors, name, self._read(request))

    def _read(self, request: Any) -> OutgoingRequest:
        try:
            # A redirect that is followed has the same bytes, unread.
            body: bytes = request.read() if isinstance(request.stream, self.library.ByteStream) else request.content
        except self.library.RequestNotRead as error:
            raise StreamedRequest from error
        headers = tuple(request.headers.multi_items())
        return OutgoingRequest(method=request.method, url=str(request.url), headers=headers, body=body)

    def prepare(self, request: Any, key: str, left: float) -> None:
        """Give an attempt its key, and no more time than is left."""
        request.headers[provider(self.terms.provider).header] = key
        given = request.extensions.get("timeout", {})
        timeout = {part: _shorter(given.get(part), left) for part in ("connect", "read", "write", "pool")}
        request.extensions = {**request.extensions, "timeout": timeout}

    def answer(self, response: Any, body: bytes) -> Answer:
        """Return a response that was read."""
        return Answer(status=response.status_code, headers=wire_free(tuple(response.headers.multi_items())), body=body)

    def response(self, answer: Answer) -> Any:
        """Return a response of the library: the same one for a new and for a stored answer."""
        return self.library.Response(
            answer.status,
            headers=list(answer.headers),
            stream=self.library.ByteStream(answer.body),
            extensions={EXTENSION: answer.facts},
        )


class SyncTransport(Transports):
    """Around a sync transport."""

    def __init__(self, provider: str, transport: Any = None, **terms: Any) -> None:
        self.terms = Terms(provider=provider, **terms)
        self._wrapped = self.library.HTTPTransport() if transport is None else transport

    def handle_request(self, request: Any) -> Any:
        """Send a request, again if it makes sense, and return its response; or one that is stored."""
        exchange = self.exchange_for(request)
        if exchange is None:
            return self._wrapped.handle_request(request)

        def send(key: str, left: float) -> Answer:
            self.prepare(request, key, left)
            response = self._wrapped.handle_request(request)
            try:
                return self.answer(response, response.read())
            finally:
                response.close()

        return self.response(exchange.run(send))

    def close(self) -> None:
        self._wrapped.close()


class AsyncTransport(Transports):
    """Around an async transport."""

    def __init__(self, provider: str, transport: Any = None, **terms: Any) -> None:
        self.terms = Terms(provider=provider, **terms)
        self._wrapped = self.library.AsyncHTTPTransport() if transport is None else transport

    async def handle_async_request(self, request: Any) -> Any:
        """See SyncTransport.handle_request()."""
        exchange = self.exchange_for(request)
        if exchange is None:
            return await self._wrapped.handle_async_request(request)

        async def send(key: str, left: float) -> Answer:
            self.prepare(request, key, left)
            response = await self._wrapped.handle_async_request(request)
            try:
                return self.answer(response, await response.aread())
            finally:
                await response.aclose()

        return self.response(await exchange.arun(send))

    async def aclose(self) -> None:
        await self._wrapped.aclose()


def _shorter(given: float | None, left: float) -> float:
    return left if given is None else min(given, left)
