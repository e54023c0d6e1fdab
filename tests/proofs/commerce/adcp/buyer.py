"""The steps of a storyboard that the runner cannot take: those of two of its contracts, and of one
of its reviewers.
"""

from __future__ import annotations

import copy
import json
import time
import urllib.request
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any
from uuid import uuid4

#: The most seconds that a buyer waits because it was told to.
PATIENCE = 30.0
Json = dict[str, Any]


class Buyer:
    """A client of the seller's tools. It notes in `missed` what it would miss of it."""

    def __init__(self, url: str, token: str) -> None:
        self.url, self.token = url, token
        self.missed: list[str] = []

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Json:
        """Return the structured content of a tool's result."""
        message = {
            "jsonrpc": "2.0",
            "id": str(uuid4()),
            "method": "tools/call",
            "params": {"name": tool, "arguments": arguments},
        }
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.token}"}
        request = urllib.request.Request(self.url, json.dumps(message).encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as response:
            result: Json = json.load(response)["result"]["structuredContent"]
        return result

    def expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.missed.append(otherwise)

    def bought(self) -> int:
        return len(self.call("get_media_buys", {})["media_buys"])


def code(answer: Json) -> str | None:
    """Return the code of an error; `None`: it is none."""
    found: Json | None = answer.get("adcp_error")
    return None if found is None else str(found["code"])


def in_parallel(buyer: Buyer, step: Json) -> None:
    """`parallel_dispatch_runner`: calls of one key at the same instant make one media buy."""
    count, asked = (
        step["parallel_dispatch"]["count"],
        {**step["sample_request"], "idempotency_key": str(uuid4())},
    )
    together, before = Barrier(count), buyer.bought()

    def send(_: int) -> Json:
        together.wait(step["parallel_dispatch"]["barrier_timeout_ms"] / 1000)
        answer = buyer.call(step["task"], asked)
        while code(answer) == "IDEMPOTENCY_IN_FLIGHT":
            time.sleep(answer["adcp_error"]["retry_after"])
            answer = buyer.call(step["task"], asked)
        return answer

    with ThreadPoolExecutor(count) as threads:
        answers = list(threads.map(send, range(count)))
    found = {str(answer.get("media_buy_id")) for answer in answers}
    buyer.expect(len(found) == 1 and found != {"None"}, f"one media_buy_id, not {sorted(found)}")
    replays = sum(answer.get("replayed", False) for answer in answers)
    buyer.expect(replays == count - 1, f"{count - 1} replays, not {replays}")
    buyer.expect(buyer.bought() == before + 1, "one media buy of all")


def past_the_limit(buyer: Buyer, step: Json) -> None:
    """`rate_limit_trip_runner`: the call that was one too many is carried out when its time has
    come.
    """
    trip = step["rate_limit_trip"]
    tool, asked = trip["trip_target_task"], copy.deepcopy(trip["trip_target_sample_request"])
    answer: Json = {}
    for _ in range(trip["max_attempts"]):
        asked["idempotency_key"] = str(uuid4())
        answer = buyer.call(tool, asked)
        if code(answer) is not None:
            break
    buyer.expect(code(answer) == "RATE_LIMITED", f"RATE_LIMITED, not {code(answer)}")
    wait = answer.get("adcp_error", {}).get("retry_after")
    if wait is None or not 0 < wait <= min(PATIENCE, trip["replay_max_wait_seconds"]):
        buyer.missed.append(f"a retry_after that can be kept, not {wait}")
        return
    time.sleep(wait)
    asked["context"] = {"correlation_id": "another"}
    again = buyer.call(tool, asked)
    buyer.expect("media_buy_id" in again, f"a media buy after retry_after, not {code(again)}")
    buyer.expect(not again.get("replayed"), "a first execution")
    buyer.expect(
        buyer.call(tool, asked).get("media_buy_id") == again.get("media_buy_id"),
        "a replay of that one",
    )


def after_an_error(buyer: Buyer, step: Json) -> None:
    """What a reviewer probes: an error releases its key, for another request as well, and leaves
    nothing behind.
    """
    asked, before = {**step["sample_request"], "idempotency_key": str(uuid4())}, buyer.bought()
    cheap = [{**package, "budget": 0} for package in asked["packages"]]
    refused = buyer.call(step["task"], {**asked, "packages": cheap})
    buyer.expect(
        code(refused) == "BUDGET_TOO_LOW", f"the seller's own refusal, not {code(refused)}"
    )
    buyer.expect(buyer.bought() == before, "no media buy of a refusal")
    answer = buyer.call(step["task"], asked)
    buyer.expect("media_buy_id" in answer, f"a media buy, not {code(answer)}")
    buyer.expect(not answer.get("replayed"), "a first execution")


#: Keyed by the step whose request is sent.
STEPS: dict[str, Callable[[Buyer, Json], None]] = {
    "create_media_buy_concurrent": in_parallel,
    "create_media_buy_conflict": after_an_error,
    "expect_rate_limit_not_replayed": past_the_limit,
}
