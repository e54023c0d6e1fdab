"""Customers: some wait for their response, others do not."""

from __future__ import annotations

import json
import socket
import struct
import time
import uuid
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from statistics import median
from threading import current_thread

import httpx

from django_idempotency.testing.linearizability import Answer, Call, History, assert_linearizable

from .database import effects
from .plans import PATIENCE, POLL
from .servers import Server

CHARGE = {"amount": 2499, "currency": "inr"}
REPLAYED = "Idempotent-Replayed"
#: Where an effect is not committed with its response, so retries may repeat it.
LEASED = ("/lease/", "/async/")


def new_key() -> str:
    return str(uuid.uuid4())


class Customer:
    """Sends charges from many threads. Each request has its own connection, so any worker may take
    it.
    """

    def __init__(self, headers: Mapping[str, str] | None = None) -> None:
        self.headers = {**(headers or {}), "X-Customer": "c-1", "Content-Type": "application/json"}
        self.history = History()
        self._threads = ThreadPoolExecutor(max_workers=64)
        self._atomic: set[str] = set()

    def close(self) -> None:
        """Wait for all requests.

        Then an order explains all responses, and the effects under `atomic`.
        """
        self._threads.shutdown()
        for key in self._atomic:
            # The key of this turn.
            self.history.count(lambda key=key: effects(key), key=key)  # type: ignore[misc]
        assert_linearizable(self.history)

    def post(self, server: Server, path: str, key: str, **body: object) -> httpx.Response:
        """Send a charge; `body` overrides its fields."""
        headers = {**self.headers, "Idempotency-Key": key}
        if not path.startswith(LEASED):
            self._atomic.add(key)
        # A separate client each: a shared one without keep-alive closes connections that others
        # have just begun to use.
        with httpx.Client(timeout=PATIENCE, trust_env=False, verify=False) as client:
            send = partial(client.post, server.url + path, json={**CHARGE, **body}, headers=headers)
            return self.history.send(
                send, key=key, request=(path, *sorted(body.items())), client=current_thread().name
            )

    def begin(self, server: Server, path: str, key: str, **body: object) -> Future[httpx.Response]:
        """Send a charge without waiting for the response."""
        return self._threads.submit(self.post, server, path, key, **body)

    def burst(
        self, server: Server, path: str, keys: Iterable[str], **body: object
    ) -> list[httpx.Response]:
        """Send charges at once, and wait for all responses."""
        return [
            future.result() for future in [self.begin(server, path, key, **body) for key in keys]
        ]

    def insist(
        self, server: Server, path: str, key: str, **body: object
    ) -> tuple[httpx.Response, float]:
        """Retry as a good client does, but impatiently, until the response is not 409.

        Return it and the time taken.
        """
        began = time.monotonic()
        while time.monotonic() - began < PATIENCE:
            answer = self.post(server, path, key, **body)
            if answer.status_code != 409:
                return answer, time.monotonic() - began
            assert_busy(answer)
            time.sleep(5 * POLL)
        raise TimeoutError(f"{key} stays busy.")

    def begin_insisting(
        self, server: Server, path: str, key: str
    ) -> Future[tuple[httpx.Response, float]]:
        """See insist(). Does not wait for it."""
        return self._threads.submit(self.insist, server, path, key)

    def leave_soon(self, server: Server, path: str, key: str) -> Departing:
        """Send a charge and hang up before the response."""
        self.history.append(
            Call(key=key, request=(path,), invoked=time.monotonic(), answer=Answer.UNKNOWN)
        )
        return Departing(server, path, {**self.headers, "Idempotency-Key": key})


class Departing:
    """A customer whose connection breaks."""

    def __init__(self, server: Server, path: str, headers: Mapping[str, str]) -> None:
        body = json.dumps(CHARGE)
        lines = [
            f"POST {path} HTTP/1.1",
            f"Host: 127.0.0.1:{server.port}",
            f"Content-Length: {len(body)}",
        ]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._socket = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
        self._socket.sendall("\r\n".join([*lines, "", body]).encode())

    def leave(self) -> None:
        # No lingering: the server sees a reset, as from a phone that is gone, even if it has
        # written in the meantime.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()


def assert_busy(answer: httpx.Response) -> None:
    """Assert that a response says: in progress, ask again."""
    assert answer.status_code == 409, answer.text
    assert answer.json()["code"] == "in-progress"
    assert int(answer.headers["Retry-After"]) >= 1


def assert_busy_at_once(customer: Customer, server: Server, path: str, key: str) -> None:
    """Assert that duplicates get this at once, not when the work ends.

    One or two may be slow on a busy machine.
    """
    answers = [customer.post(server, path, key) for _ in range(5)]
    for answer in answers:
        assert_busy(answer)
    assert median(answer.elapsed.total_seconds() for answer in answers) < 3


def assert_first(answer: httpx.Response) -> None:
    assert (answer.status_code, REPLAYED in answer.headers) == (201, False), answer.text


def assert_replay(answer: httpx.Response, first: httpx.Response | None = None) -> None:
    assert (answer.status_code, answer.headers.get(REPLAYED)) == (201, "true"), answer.text
    assert first is None or answer.content == first.content


def assert_unanswered(future: Future[httpx.Response]) -> None:
    """Assert that the server died during the request."""
    with suppress(httpx.TransportError):
        raise AssertionError(f"There was an answer: {future.result().status_code}")
