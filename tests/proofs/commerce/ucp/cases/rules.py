"""What the protocol says of keys and the suite does not ask: specification, `signatures.md`,
"Idempotency Key Requirements".
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import httpx
import pytest

from .....faults.proxy import Proxy

if TYPE_CHECKING:
    from ..shop.stage import ShopStage

ROSES = {
    "currency": "USD",
    "line_items": [{"item": {"id": "bouquet_roses"}, "quantity": 1}],
    "fulfillment": {
        "methods": [
            {
                "type": "shipping",
                "destinations": [{"id": "home", "address_country": "US"}],
                "selected_destination_id": "home",
                "groups": [{"selected_option_id": "std-ship"}],
            }
        ]
    },
}
CARD = {"payment_data": {"id": "card", "credential": {"type": "token", "token": "success_token"}}}

#: Each operation: its method, what follows the path of a checkout, its body, and the same
#: otherwise.
OPERATIONS: dict[str, tuple[str, str | None, object, object]] = {
    "create": ("POST", None, ROSES, {**ROSES, "currency": "EUR"}),
    "update": ("PUT", "", ROSES, {**ROSES, "currency": "EUR"}),
    "complete": ("POST", "/complete", CARD, {**CARD, "risk_signals": {"score": 1}}),
    "cancel": ("POST", "/cancel", None, {"reason": "too dear"}),
}


class Operation:
    """One operation of an agent, which may be sent again."""

    def __init__(self, url: str, name: str) -> None:
        self.key: str | None = str(uuid4())
        self.method, path, self.body, self.other = OPERATIONS[name]
        self.url = f"{url}/checkout-sessions"
        if path is not None:
            opened = self.sent("POST", self.url, ROSES, str(uuid4()))
            self.url += f"/{opened.json()['id']}{path}"

    def send(self, *, other: bool = False) -> httpx.Response:
        return self.sent(self.method, self.url, self.other if other else self.body, self.key)

    @staticmethod
    def sent(method: str, url: str, body: object, key: str | None) -> httpx.Response:
        headers = {
            "UCP-Agent": 'profile="https://agent.example/profile"',
            "Content-Type": "application/json",
        }
        if key is not None:
            headers["Idempotency-Key"] = key
        content = b"" if body is None else json.dumps(body).encode()
        return httpx.request(method, url, content=content, headers=headers, timeout=30)


def effects() -> int:
    from ..shop.models import Effect

    return Effect.objects.count()


@pytest.fixture(params=OPERATIONS)
def operation(request: pytest.FixtureRequest, server: Proxy, stage: ShopStage) -> Operation:
    made = Operation(f"http://127.0.0.1:{server.port}", request.param)
    stage.reset()
    return made


@pytest.fixture
def done(operation: Operation) -> Callable[[], int]:
    """Return how many effects there have been since the test began."""
    before = effects()
    return lambda: effects() - before


def refusal(response: httpx.Response) -> tuple[int, Any]:
    """Return the status and code of a refusal, which has the protocol's members and no others."""
    body = response.json()
    assert sorted(body) == ["code", "content"]
    assert isinstance(body["content"], str)
    return response.status_code, body["code"]


def test_a_replay_is_the_first_response(operation: Operation, done: Callable[[], int]) -> None:
    """A duplicate gets the cached response, byte for byte, and one effect."""
    first, again = operation.send(), operation.send()
    assert first.is_success
    assert (again.status_code, again.content, again.headers["Content-Type"]) == (
        first.status_code,
        first.content,
        first.headers["Content-Type"],
    )
    assert ("Idempotent-Replayed" in first.headers, again.headers["Idempotent-Replayed"]) == (
        False,
        "true",
    )
    assert done() == 1


def test_another_body(operation: Operation, done: Callable[[], int]) -> None:
    """A duplicate with other bytes is a conflict, is not carried out, and leaves the first response
    to be had.
    """
    first, conflict, again = operation.send(), operation.send(other=True), operation.send()
    assert refusal(conflict) == (409, "request_mismatch")
    assert again.content == first.content
    assert done() == 1


def test_two_at_once(operation: Operation, stage: ShopStage, done: Callable[[], int]) -> None:
    """While the first runs, the second is refused and told when to come back; then it gets the
    response of the first.
    """
    stage.hold()
    responses: list[httpx.Response] = []
    running = threading.Thread(target=lambda: responses.append(operation.send()))
    running.start()
    assert stage.entered.wait(30)
    meanwhile = operation.send()
    running.join(30)
    assert refusal(meanwhile) == (409, "in_progress")
    assert int(meanwhile.headers["Retry-After"]) >= 1
    assert operation.send().content == responses[0].content
    assert (done(), stage.statuses.count(409)) == (1, 1)


def test_a_lost_response(
    operation: Operation, server: Proxy, stage: ShopStage, done: Callable[[], int]
) -> None:
    """The connection breaks after the COMMIT and before the response, which the retry gets: one
    effect.
    """
    stage.lose(server)
    with pytest.raises(httpx.TransportError):
        operation.send()
    again = operation.send()
    assert again.is_success
    assert (done(), stage.replays) == (1, 1)


def test_a_server_error_is_not_stored(
    operation: Operation, stage: ShopStage, done: Callable[[], int]
) -> None:
    """After a 500 nothing has happened, and the retry runs."""
    stage.breaking = True
    assert (operation.send().status_code, done()) == (500, 0)
    assert operation.send().is_success
    assert (done(), stage.replays) == (1, 0)


def test_the_store_is_down(operation: Operation, done: Callable[[], int]) -> None:
    """It fails closed: 503, nothing is carried out, and the key is as new when the store is
    back.
    """
    from django.test import override_settings

    orm = {"BACKEND": "django_idempotency.stores.orm.ORMStore", "OPTIONS": {"using": "gone"}}
    with override_settings(IDEMPOTENCY={"STORES": {"default": orm}}):
        refused = operation.send()
    assert (refusal(refused), done()) == ((503, "store_unavailable"), 0)
    assert "Retry-After" in refused.headers
    assert operation.send().is_success
    assert done() == 1


def test_no_key(operation: Operation, done: Callable[[], int]) -> None:
    """Without a key nothing is carried out."""
    operation.key = None
    assert (refusal(operation.send()), done()) == ((400, "key_missing"), 0)


def test_a_key_of_another_operation(server: Proxy, stage: ShopStage) -> None:
    """A key is one of an agent and a kind of operation: the same key may complete what it has
    created.
    """
    url, key = f"http://127.0.0.1:{server.port}", str(uuid4())
    before = effects()
    created = Operation.sent("POST", f"{url}/checkout-sessions", ROSES, key)
    completed = Operation.sent(
        "POST", f"{url}/checkout-sessions/{created.json()['id']}/complete", CARD, key
    )
    assert (created.status_code, completed.status_code, effects() - before) == (201, 200, 2)
