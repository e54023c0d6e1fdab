"""One way to make a call with each library, sync and async, so that every test runs on all of
them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
import requests
from asgiref.sync import async_to_sync

from django_idempotency.contrib.client import outgoing
from django_idempotency.contrib.client.httpx import AsyncIdempotentClient, IdempotentClient
from django_idempotency.contrib.client.messages import CallFacts
from django_idempotency.contrib.client.requests import IdempotentAdapter

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


def client(provider: str = "fake", **options: Any) -> IdempotentClient:
    """Return a client of httpx. Loading certificates would take most of a test's time."""
    return IdempotentClient(
        provider, **{**QUICK, "transport": httpx.HTTPTransport(verify=False), **options}
    )


def with_httpx(method: str, url: str, name: str | None = None, /, **arguments: Any) -> Reply:
    extensions = {} if name is None else {"idempotency": name}
    with client(**arguments.pop("terms", {})) as made:
        response = made.request(method, url, extensions=extensions, **arguments)
        return reply(response, response.extensions.get("idempotency"))


async def with_async_httpx(
    method: str, url: str, name: str | None = None, /, **arguments: Any
) -> Reply:
    terms = {
        **QUICK,
        "transport": httpx.AsyncHTTPTransport(verify=False),
        **arguments.pop("terms", {}),
    }
    extensions = {} if name is None else {"idempotency": name}
    async with AsyncIdempotentClient("fake", **terms) as made:
        response = await made.request(method, url, extensions=extensions, **arguments)
        return reply(response, response.extensions.get("idempotency"))


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
    "httpx": with_httpx,
    "async httpx": async_to_sync(with_async_httpx),
    "requests": with_requests,
}
BROKEN: tuple[type[Exception], ...] = (
    httpx.TransportError,
    requests.ConnectionError,
    requests.Timeout,
)
