"""The proxy that puts a database at a distance."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from benchmarks.delaying import delayed

pytestmark = pytest.mark.slow

DELAY = 0.2


@pytest.fixture
def echo() -> Iterator[int]:
    """Yield the port of a server that returns each chunk."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            while chunk := connection.recv(100):
                connection.sendall(chunk)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]


def test_a_trip_takes_its_time_and_is_counted(echo: int) -> None:
    """Each wait for an answer takes two delays and counts as one trip; what is sent together shares them."""
    with delayed("127.0.0.1", echo, DELAY) as proxy, socket.create_connection(("127.0.0.1", proxy.port)) as client:
        for _ in range(2):
            began = time.perf_counter()
            client.sendall(b"a")
            assert client.recv(100) == b"a"
            assert time.perf_counter() - began >= 2 * DELAY
        assert proxy.trips() == 2
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began, received = time.perf_counter(), b""
        client.sendall(b"1")
        time.sleep(DELAY / 2)
        client.sendall(b"2")
        while len(received) < 2:
            received += client.recv(100)
        assert received == b"12"
        assert time.perf_counter() - began < 2.9 * DELAY, "the second chunk has waited for the first one's arrival"
        assert proxy.trips() == 3
