"""The store under test, and nothing left open behind a failing test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from django_idempotency.stores.orm import ORMStore

from .acting import CALLS

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


@contextmanager
def one_write_at_a_time() -> Iterator[None]:
    """Make moto's writes atomic, as DynamoDB's are: its threads look at a condition and then write, without a lock."""
    from moto.dynamodb.models import DynamoDBBackend

    lock = threading.RLock()

    def locked(write: Callable[..., Any]) -> Callable[..., Any]:
        def under_lock(*given: Any, **named: Any) -> Any:
            with lock:
                return write(*given, **named)

        return under_lock

    with pytest.MonkeyPatch.context() as patch:
        for name in ("put_item", "update_item", "delete_item", "transact_write_items"):
            patch.setattr(DynamoDBBackend, name, locked(getattr(DynamoDBBackend, name)))
        yield


@pytest.fixture(autouse=True)
def closed(db: None) -> Iterator[None]:
    """End the guards that a failing test holds: they would fail all that follow."""
    CALLS.clear()
    yield
    for call in reversed(CALLS):
        with suppress(Exception):
            call.operation._end_guard(giving_up=True)
