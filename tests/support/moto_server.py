"""moto's server in a process of its own. It writes as atomically as DynamoDB does.

python -m tests.support.moto_server PORT
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def one_write_at_a_time() -> Iterator[None]:
    """Lock moto's writes: its threads check a condition and then write, so two may both find the
    same item to take.
    """
    from moto.dynamodb.models import DynamoDBBackend  # not above: takes a second

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


if __name__ == "__main__":
    from moto.server import main

    with one_write_at_a_time():
        main(["-H", "127.0.0.1", "-p", sys.argv[1]])
