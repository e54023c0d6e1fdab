"""A TCP proxy that puts a database at a distance.

It runs in its own process, beside what is measured.

    python -m benchmarks.delaying HOST PORT SECONDS

It prints its port, then after each line of input the number of trips so far, and ends with its
input. A trip is one wait of the client: packets that it sends until it has read something.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from statistics import median

#: Bytes read at once; sleeps that find out how late this machine wakes a thread, and their total in
#: seconds at most.
CHUNK, PROBES, PROBING = 65536, 200, 0.4

Parcel = tuple[float, bytes]


class Proxy:
    """What a client uses of the process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._ask, self._answers = process.stdin, process.stdout
        self.port = int(self._answers.readline())

    def trips(self) -> int:
        """Return how often clients have waited, on all connections."""
        self._ask.write("\n")
        self._ask.flush()
        return int(self._answers.readline())


@contextmanager
def delayed(host: str, port: int, seconds: float) -> Iterator[Proxy]:
    """Run a proxy to an address that takes so long each way."""
    command = [sys.executable, "-m", "benchmarks.delaying", host, str(port), str(seconds)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Proxy(process)


class Wire:
    """One connection. Each chunk travels for itself: nothing that follows waits for its arrival."""

    def __init__(self, client: socket.socket, server: socket.socket, delay: float) -> None:
        self._delay, self.trips, self._read = delay, 0, True
        for source, target, asks in ((client, server, True), (server, client, False)):
            source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            under_way: SimpleQueue[Parcel] = SimpleQueue()
            threading.Thread(
                target=self._receive, args=(source, under_way, asks), daemon=True
            ).start()
            threading.Thread(
                target=self._deliver, args=(target, under_way, asks), daemon=True
            ).start()

    def _receive(self, source: socket.socket, under_way: SimpleQueue[Parcel], asks: bool) -> None:
        data = b"begun"
        while data:
            try:
                data = source.recv(CHUNK)
            except OSError:
                data = b""
            if asks and data and self._read:
                self.trips, self._read = self.trips + 1, False
            under_way.put((time.perf_counter() + self._delay, data))

    def _deliver(self, target: socket.socket, under_way: SimpleQueue[Parcel], asks: bool) -> None:
        with suppress(OSError):
            while (parcel := under_way.get())[1]:
                due, data = parcel
                while (left := due - time.perf_counter()) > 0:
                    time.sleep(left)
                if not asks:
                    self._read = True
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)


def lateness(seconds: float) -> float:
    """Return how much longer than asked for a thread sleeps here."""
    late = []
    for _ in range(min(PROBES, int(PROBING / seconds) + 1)):
        began = time.perf_counter()
        time.sleep(seconds)
        late.append(time.perf_counter() - began - seconds)
    return median(late)


def main(host: str, port: str, seconds: str) -> None:
    delay = max(float(seconds) - lateness(float(seconds)), 0)
    wires: list[Wire] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            client, _ = listener.accept()
            wires.append(Wire(client, socket.create_connection((host, int(port))), delay))

    threading.Thread(target=accept, daemon=True).start()
    print(listener.getsockname()[1], flush=True)
    for _ in sys.stdin:
        print(sum(wire.trips for wire in wires), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
