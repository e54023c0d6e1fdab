"""The store under test; nothing stays open after a failing test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from django_idempotency.stores.orm import ORMStore

from ..support.store_servers import aws_server
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
    with aws_server() as url:
        yield url


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
