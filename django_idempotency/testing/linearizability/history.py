"""Records what clients see, from many threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from typing import Any, TypeVar

from ...core.statuses import HeaderStatus
from ...http.exchange import HEADER
from .model import Answer, Call

Response = TypeVar("Response")

#: `Idempotency-Status` → what it says about a call. Of any other, the outcome is unknown.
ANSWERS = {
    HeaderStatus.CREATED: Answer.EXECUTED,
    HeaderStatus.RELEASED: Answer.DROPPED,
    HeaderStatus.FAILED: Answer.FAILED,
    HeaderStatus.LOST: Answer.LOST,
    HeaderStatus.REPLAYED: Answer.REPLAYED,
    HeaderStatus.IN_PROGRESS: Answer.BUSY,
    HeaderStatus.MISMATCH: Answer.MISMATCH,
    HeaderStatus.REFUSED: Answer.REFUSED,
}


class History:
    """A list of calls. Threads may append to it at the same time."""

    def __init__(self) -> None:
        self._calls: list[Call] = []

    def __iter__(self) -> Iterator[Call]:
        return iter(list(self._calls))

    def __len__(self) -> int:
        return len(self._calls)

    def append(self, call: Call) -> None:
        self._calls.append(call)

    def send(
        self, act: Callable[[], Response], *, key: str, client: str = "", request: Hashable = None
    ) -> Response:
        """Send a request under a key: call `act`, which returns a response of Django or of an HTTP
        client.

        What it says is read from `Idempotency-Status`. If `act` raises, the outcome is unknown, and
        the error is raised.
        """
        seen: dict[str, Any] = {"answer": Answer.UNKNOWN}
        sent: dict[str, Any] = {
            "key": key,
            "client": client,
            "request": request,
            "invoked": time.monotonic(),
        }
        try:
            got = act()
            seen = {"answer": said(got), "response": _shown(got), "responded": time.monotonic()}
            return got
        finally:
            self.append(Call(**sent, **seen))

    def count(self, effects: Callable[[], int], *, key: str) -> int:
        """Call `effects`, which counts what the key's work has committed, and record the number.

        Only under `atomic` are they as many as the responses say.
        """
        invoked = time.monotonic()
        number = effects()
        self.append(
            Call(
                key=key,
                invoked=invoked,
                responded=time.monotonic(),
                answer=Answer.COUNTED,
                response=number,
            )
        )
        return number

    def forget(self, key: str) -> None:
        """Note that the record of a key has expired, or was deleted, since the last call."""
        now = time.monotonic()
        self.append(Call(key=key, invoked=now, responded=now, answer=Answer.FORGOTTEN))


def _shown(response: Any) -> tuple[int, bytes]:
    return response.status_code, bytes(response.content)


def said(response: Any) -> Answer:
    """Return what a response says about its call; without our header, or where that says so,
    nothing is known.
    """
    try:
        return ANSWERS.get(HeaderStatus(response.headers.get(HEADER)), Answer.UNKNOWN)
    except ValueError:
        return Answer.UNKNOWN
