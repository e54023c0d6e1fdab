"""A provider on a real socket.

It does its work once for each key, counts effects, and fails as it is told to.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def meaning(body: bytes) -> Any:
    """Read JSON; a form is text."""
    try:
        return json.loads(body or b"null")
    except ValueError:
        return body.decode()


@dataclass(slots=True, kw_only=True)
class Failure:
    """What happens to one request."""

    #: The response instead of the work; `None`: the connection is closed.
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b"{}"
    #: Is the work done nevertheless?
    works: bool = False
    #: Set by the provider when the request has arrived; then it waits for `proceed`.
    arrived: threading.Event | None = None
    proceed: threading.Event | None = None
    #: Set when the work is done.
    done: threading.Event = field(default_factory=threading.Event)
    #: Seconds between two bytes of its body.
    drips: float = 0


LOST = Failure(works=True)  # it is done, and nobody hears of it
BROKEN = Failure()


@dataclass(slots=True)
class Provider:
    url: str = ""
    #: For the next requests, one each. After that everything works.
    plan: list[Failure] = field(default_factory=list)
    #: Key → how often its work was done, and what was responded.
    effects: Counter[str] = field(default_factory=Counter)
    responses: dict[str, bytes] = field(default_factory=dict)
    #: Each request: its key (or `None`), its body, its headers.
    seen: list[tuple[str | None, bytes, dict[str, str]]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    #: Does it deduplicate?
    forgets: bool = False

    @property
    def keys(self) -> list[str | None]:
        return [key for key, _, _ in self.seen]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    provider: Provider

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        provider = self.provider
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        key = self.headers.get("Idempotency-Key")
        with provider.lock:
            provider.seen.append(
                (key, body, {name.lower(): value for name, value in self.headers.items()})
            )
            failure = provider.plan.pop(0) if provider.plan else None
        if failure is not None and failure.arrived is not None:
            failure.arrived.set()
            assert failure.proceed is not None
            failure.proceed.wait(30)
        replayed, answer = False, b""
        if failure is None or failure.works:
            replayed, answer = self.work(key, body)
        if failure is not None:
            failure.done.set()
        if failure is None or (failure.works and failure.status == 200):
            marks = (
                {"Idempotent-Replayed": "true", "Original-Request": "req_first"} if replayed else {}
            )
            self.respond(
                200,
                {"Request-Id": f"req_{len(provider.seen)}", "Set-Cookie": "a=b", **marks},
                answer,
            )
        elif failure.status is None:
            self.close_connection = True
            self.connection.close()
        else:
            self.respond(failure.status, failure.headers, failure.body, drips=failure.drips)

    def do_PUT(self) -> None:
        self.do_POST()

    def do_DELETE(self) -> None:
        self.do_POST()

    def work(self, key: str | None, body: bytes) -> tuple[bool, bytes]:
        provider = self.provider
        with provider.lock:
            if key in provider.responses and not provider.forgets:
                return True, provider.responses[str(key)]
            provider.effects[str(key)] += 1
            answer = json.dumps(
                {"id": f"ch_{sum(provider.effects.values())}", "got": meaning(body)}
            )
            provider.responses[str(key)] = answer.encode()
            return False, answer.encode()

    def respond(
        self, status: int, headers: dict[str, str], body: bytes, *, drips: float = 0
    ) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Type": "application/json",
            **headers,
            "Content-Length": str(len(body)),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if drips:
            for byte in body:
                self.wfile.write(bytes([byte]))
                time.sleep(drips)
            return
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, address: Any) -> None:
        """Say nothing: clients are killed."""


@contextmanager
def serving() -> Iterator[Provider]:
    """Run a provider until the end of the block."""
    provider = Provider()
    handler = type("OneProvider", (Handler,), {"provider": provider})
    with Server(("127.0.0.1", 0), handler) as server:
        provider.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield provider
        finally:
            server.shutdown()
            thread.join()
