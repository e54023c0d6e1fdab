"""The store under test; nothing stays open after a failing test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from django_idempotency.stores.orm import ORMStore

from ..support.moto_server import one_write_at_a_time
from .helpers import CALLS

pytest.register_assert_rewrite("django_idempotency.testing.contract")


@pytest.fixture
def store() -> ORMStore:
    return ORMStore()


@pytest.fixture(scope="module")
def dynamodb() -> Iterator[str]:
    """Return the address of a DynamoDB-compatible server.

    Not session-wide: its threads outlive a fork.
    """
    from moto.server import ThreadedMotoServer  # not at the top: it takes a second

    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    with one_write_at_a_time():
        server.start()
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
        server.stop()


@pytest.fixture(autouse=True)
def closed(request: pytest.FixtureRequest) -> Iterator[None]:
    """End the guards that a failing test holds; otherwise all later tests would fail."""
    if request.node.get_closest_marker("django_db") is not None:
        request.getfixturevalue("db")  # first, so that it ends last
    CALLS.clear()
    yield
    for call in reversed(CALLS):
        with suppress(Exception):
            call.operation.close()
