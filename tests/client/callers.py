"""One way to make a call with each library, sync and async, so that every test runs on all of them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
import requests
from asgiref.sync import async_to_sync

from django_idempotency.client import outgoing
from django_idempotency.client.httpx import AsyncIdempotentTransport, IdempotentTransport
from django_idempotency.client.messages import CallFacts
from django_idempotency.client.requests import IdempotentAdapter

#: Nobody waits in a test.
QUICK: dict[str, Any] = {"base": 0.0, "longest": 0.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    status: int
    body: Any
    facts: CallFacts | None
    headers: dict[str, str]


def reply(response: Any, facts: CallFacts | None) -> Reply:
    headers = {name.lower(): value for name, value in response.headers.items()}
    body = response.json() if response.content else None
    return Reply(status=response.status_code, body=body, facts=facts, headers=headers)


def with_httpx(library: Any, transport: Any) -> Callable[..., Reply]:
    def call(method: str, url: str, name: str | None = None, /, **arguments: Any) -> Reply:
        terms = arguments.pop("terms", {})
        extensions = {} if name is None else {"idempotency": name}
        plain = library.HTTPTransport(verify=False)  # loading certificates takes most of a test's time
        with library.Client(transport=transport("fake", plain, **{**QUICK, **terms}), trust_env=False) as client:
            response = client.request(method, url, extensions=extensions, **arguments)
            return reply(response, response.extensions.get("idempotency"))

    return call


def with_async_httpx(library: Any, transport: Any) -> Callable[..., Reply]:
    async def acall(method: str, url: str, name: str | None = None, /, **arguments: Any) -> Reply:
        terms = arguments.pop("terms", {})
        extensions = {} if name is None else {"idempotency": name}
        plain = library.AsyncHTTPTransport(verify=False)
        async with library.AsyncClient(
            transport=transport("fake", plain, **{**QUICK, **terms}), trust_env=False
        ) as client:
            response = await client.request(method, url, extensions=extensions, **arguments)
            return reply(response, response.extensions.get("idempotency"))

    return async_to_sync(acall)


def with_requests(method: str, url: str, name: str | None = None, /, **arguments: Any) -> Reply:
    terms = arguments.pop("terms", {})
    with requests.Session() as session:
        session.trust_env = False
        session.mount("http://", IdempotentAdapter("fake", **{**QUICK, **terms}))
        if name is None:
            response = session.request(method, url, **arguments)
        else:
            with outgoing(name):
                response = session.request(method, url, **arguments)
        return reply(response, getattr(response, "idempotency", None))


CALLERS: dict[str, Callable[..., Reply]] = {
    "httpx": with_httpx(httpx, IdempotentTransport),
    "async httpx": with_async_httpx(httpx, AsyncIdempotentTransport),
    "requests": with_requests,
}
BROKEN: tuple[type[Exception], ...] = (httpx.TransportError, requests.ConnectionError, requests.Timeout)
if sys.version_info >= (3, 11):  # httpx2 needs it
    import httpx2

    from django_idempotency.client import httpx2 as ours

    CALLERS["httpx2"] = with_httpx(httpx2, ours.IdempotentTransport)
    CALLERS["async httpx2"] = with_async_httpx(httpx2, ours.AsyncIdempotentTransport)
    BROKEN = (*BROKEN, httpx2.TransportError)
