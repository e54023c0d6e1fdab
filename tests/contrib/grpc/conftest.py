"""Servers of both kinds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

pytest.importorskip("grpc")

from django_idempotency import Policy
from django_idempotency.contrib.grpc import AsyncIdempotencyInterceptor, IdempotencyInterceptor

from .shop import CHARGE, ECHO, Client, Loop, Serve, Shop, aserving, caller, serving


@pytest.fixture(params=["sync", "aio"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def guarding(kind: str) -> Any:
    """Return a maker of interceptors of this kind: of one policy, or of policies by method."""

    def make(policies: Any = None, *, caller: Any = caller, **given: Any) -> Any:
        cls = IdempotencyInterceptor if kind == "sync" else AsyncIdempotencyInterceptor
        policy = Policy(**{"guarantee": "lease", "required": True, **given})
        return cls({CHARGE: policy, ECHO: policy} if policies is None else policies, caller=caller)

    return make


@pytest.fixture
def serve(kind: str, shop: Shop, loop: Loop) -> Iterator[Serve]:
    """Return what starts a server of this kind. All are stopped in the end."""
    with ExitStack() as stack:

        def start(*interceptors: Any) -> Client:
            served = (
                serving(shop, interceptors)
                if kind == "sync"
                else aserving(loop, shop, interceptors)
            )
            client = Client(stack.enter_context(served))
            stack.callback(client.channel.close)
            return client

        yield start


@pytest.fixture
def client(serve: Serve, guarding: Any, transactional_db: None) -> Client:
    """Return the client of a server whose `Charge` and `Echo` need a key."""
    return serve(guarding())
