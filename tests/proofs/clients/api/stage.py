"""What a test arranges on the server: a request that is held or fails, and what has been
answered.
"""

from __future__ import annotations

import threading

from ....faults.proxy import Proxy


class Stage:
    """Shared by the server's threads and the test."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        #: The statuses of all answers, in their order.
        self.statuses: list[int] = []
        #: How many of them were marked as replays.
        self.replays = 0
        self.entered, self.released = threading.Event(), threading.Event()
        self.holding = False
        self.failing = False
        #: Is a replay answered as GoCardless does: with a 409 that names the payment?
        self.conflicting = False
        self.losing: Proxy | None = None

    def lose(self, proxy: Proxy) -> None:
        """Lose the answer of the next request that reaches its view."""
        self.losing = proxy

    def hold(self) -> None:
        """Hold the next request in its view, until another one has been refused."""
        self.holding = True

    def fail(self) -> None:
        """Let the next request fail after its work (503)."""
        self.failing = True

    def fails(self) -> bool:
        failing, self.failing = self.failing, False
        return failing

    def in_view(self) -> None:
        """Wait, if this is the request to hold; or have its answer lost."""
        if self.losing is not None:
            self.losing.lose_one()
            self.losing = None
        if self.holding:
            self.holding = False
            self.entered.set()
            assert self.released.wait(30)

    def answered(self, status: int, *, replayed: bool) -> None:
        """Note an answer. A refusal releases the request that is held."""
        self.statuses.append(status)
        self.replays += replayed
        if status >= 400:
            self.released.set()


stage = Stage()
