"""The store under test, and nothing left open behind a failing test."""

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
    """Return the address of a DynamoDB-compatible server. Not for the whole session: its threads outlive a fork."""
    from moto.server import ThreadedMotoServer  # not above: takes a second

    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    with one_write_at_a_time():
        server.start()
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
        server.stop()


@pytest.fixture(autouse=True)
def closed(request: pytest.FixtureRequest) -> Iterator[None]:
    """End the guards that a failing test holds: they would fail all that follow."""
    if request.node.get_closest_marker("django_db") is not None:
        request.getfixturevalue("db")  # first, so that it ends last
    CALLS.clear()
    yield
    for call in reversed(CALLS):
        with suppress(Exception):
            call.operation.close()
