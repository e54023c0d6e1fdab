"""A connection that can be cut: to the database, or of a client to its server."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Proxy:
    """Forwards TCP to a server until it is cut."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listening.getsockname()[1]
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._swallowing = False
        self._losing = False
        self._cut = False
        self._cutting = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Break every connection, and refuse new ones."""
        with self._cutting:
            self._cut = True
            for pair in self._pairs:
                hang_up(*pair)
            self._pairs.clear()

    def mend(self) -> None:
        """Forward again."""
        self._cut = self._swallowing = False

    def swallow(self) -> None:
        """Forward requests, and break the connection instead of returning the response: the outcome
        is unknown.
        """
        self._swallowing = True

    def lose_one(self) -> None:
        """Break the connection of the next response instead of returning it, and no other."""
        self._losing = True

    def close(self) -> None:
        self.cut()
        hang_up(self._listening)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                with self._cutting:
                    if self._cut:
                        hang_up(client)
                        continue
                    server = socket.create_connection(self._target)
                    self._pairs.append((client, server))
                for source, target, answers in ((client, server, False), (server, client, True)):
                    threading.Thread(
                        target=self._forward, args=(source, target, answers), daemon=True
                    ).start()

    def _forward(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if answers and self._swallowing:
                    break
                if answers and self._losing:
                    self._losing = False
                    break
                target.sendall(data)
        hang_up(source, target)


def hang_up(*sockets: socket.socket) -> None:
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()
