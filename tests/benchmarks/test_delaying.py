"""The proxy that puts a database at a distance."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from benchmarks.delaying import delayed

pytestmark = pytest.mark.slow

#: Seconds each way; chunks that are sent within one of them.
DELAY, CHUNKS = 0.1, 20


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
    """Each wait for an answer takes two delays and counts as one trip; what is sent together shares
    them.
    """
    with (
        delayed("127.0.0.1", echo, DELAY) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port)) as client,
    ):
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(2):
            began = time.perf_counter()
            client.sendall(b"a")
            assert client.recv(100) == b"a"
            assert time.perf_counter() - began > DELAY, "one way only"
        assert proxy.trips() == 2
        began, received = time.perf_counter(), b""
        for _ in range(CHUNKS):
            client.sendall(b"1")
            time.sleep(DELAY / CHUNKS)
        while len(received) < CHUNKS:
            received += client.recv(100)
        assert time.perf_counter() - began < CHUNKS * DELAY, (
            "a chunk has waited for the arrival of the one before"
        )
        assert proxy.trips() == 3
