"""Webhooks, to a server on this machine: signed as Standard Webhooks says, and each answer is
somebody's fault or none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from pytest_django.live_server_helper import LiveServer
from standardwebhooks import Webhook, WebhookVerificationError

from django_idempotency.contrib.outbox.publishers.webhooks import Gone, Refused, WebhookPublisher
from django_idempotency.errors import BrokerUnavailable
from testproject.payments.models import Charge

from ....support.factories import UserFactory
from ....support.store_servers import free_port
from .helpers import message

OURS, NEXT, THEIRS = "whsec_b3Vycw==", "whsec_bmV4dA==", "whsec_dGhlaXJz"


class Receiver(BaseHTTPRequestHandler):
    """Notes what arrives, and answers `status`; 999 hangs up, and 998 answers with a body that does
    not end.
    """

    status = 204
    arrived: list[tuple[dict[str, str], bytes]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.arrived.append((dict(self.headers), body))
        if self.status == 999:
            return
        self.send_response(200 if self.status == 998 else self.status)
        self.send_header("location", "/elsewhere")
        self.send_header("content-length", "0" if self.status != 998 else "1000000")
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def receiver() -> Iterator[ThreadingHTTPServer]:
    Receiver.status, Receiver.arrived = 204, []
    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


Make = Callable[..., WebhookPublisher]


@pytest.fixture
def make(receiver: ThreadingHTTPServer) -> Iterator[Make]:
    made: list[WebhookPublisher] = []

    def make(**said: Any) -> WebhookPublisher:
        given = {
            "url": f"http://127.0.0.1:{receiver.server_port}/",
            "secrets": (OURS,),
            "timeout": 5.0,
            **said,
        }
        made.append(type("Publisher", (WebhookPublisher,), given)())
        return made[-1]

    yield make
    for publisher in made:
        publisher.close()


def verified(secret: str = OURS) -> Any:
    headers, body = Receiver.arrived[-1]
    return Webhook(secret).verify(body, headers)


@pytest.mark.parametrize(
    "name",
    [
        "Host",
        "host",
        "Content-Length",
        "Transfer-Encoding",
        "transfer_encoding",
        "Connection",
        "TE",
        "Upgrade",
        "Expect",
    ],
)
def test_a_message_does_not_say_how_it_travels(make: Make, name: str) -> None:
    """It would lead to another receiver, or let a proxy and a server disagree where the request
    ends.
    """
    make().publish(message(headers={name: "chunked", "X-Tenant": "a"}))
    assert len(Receiver.arrived) == 1
    headers, body = Receiver.arrived[0]
    assert headers["X-Tenant"] == "a"
    assert "chunked" not in headers.values()
    assert int(headers["Content-Length"]) == len(body)
    assert headers["Host"].startswith("127.0.0.1:")


def test_signed(make: Make) -> None:
    """The receiver verifies it, knows it by the message's id, and has what Standard Webhooks
    recommends.
    """
    make().publish(sent := message(headers={"X-Tenant": "a"}))
    assert verified() == {
        "type": "order.paid",
        "timestamp": "2026-01-02T03:04:05Z",
        "data": {"order": 7},
    }
    headers, _ = Receiver.arrived[0]
    assert (headers["webhook-id"], headers["X-Tenant"]) == (str(sent.message_id), "a")
    with pytest.raises(WebhookVerificationError):
        verified(THEIRS)


def test_a_header_cannot_stand_in_for_ours(make: Make) -> None:
    """Sent twice, the id would not be the one that is signed."""
    make().publish(sent := message(headers={"Webhook-Id": "forged", "Content-Type": "text/plain"}))
    headers, _ = Receiver.arrived[0]
    assert [value for name, value in headers.items() if name.lower() == "webhook-id"] == [
        str(sent.message_id)
    ]
    assert verified()["data"] == {"order": 7}


def test_attempts_have_one_id(make: Make) -> None:
    publisher, sent = make(), message()
    for _ in range(2):
        publisher.publish(sent)
    assert {headers["webhook-id"] for headers, _ in Receiver.arrived} == {str(sent.message_id)}


def test_a_cloud_event_is_signed(make: Make) -> None:
    make(source="/shop").publish(message())
    assert Receiver.arrived[0][0]["content-type"] == "application/cloudevents+json"
    assert verified()["source"] == "/shop"


def test_two_secrets(make: Make) -> None:
    """While a receiver changes its secret, either verifies."""
    make(secrets=(OURS, NEXT)).publish(message())
    assert verified(OURS) == verified(NEXT)


@pytest.mark.parametrize("secrets", [(), OURS])
def test_no_secrets(make: Make, secrets: Any) -> None:
    """Nothing leaves unsigned."""
    with pytest.raises(ImproperlyConfigured, match=r"Type secrets = \(\"whsec_…\",\)"):
        make(secrets=secrets).publish(message())
    assert Receiver.arrived == []


@pytest.mark.parametrize("status", [200, 201, 202, 204, 998])
def test_taken(make: Make, status: int) -> None:
    """Any 2xx; what its body holds is not read, however long it is."""
    Receiver.status = status
    make().publish(message())
    assert len(Receiver.arrived) == 1


@pytest.mark.parametrize("status", [301, 307, 400, 401, 404, 409, 422, 500])
def test_not_taken(make: Make, status: int) -> None:
    """It concerns the message; a redirect is not followed."""
    Receiver.status = status
    with pytest.raises(Refused, match=str(status)):
        make().publish(message())
    assert len(Receiver.arrived) == 1


@pytest.mark.parametrize("status", [429, 502, 503, 504, 999])
@pytest.mark.parametrize("single", [True, False])
def test_away(make: Make, status: int, single: bool) -> None:
    """One receiver for all messages is the broker; of many, one that is away concerns its own
    messages only.
    """
    Receiver.status = status
    with pytest.raises(BrokerUnavailable if single else Refused):
        make(single=single).publish(message())


def test_nobody_listens(make: Make) -> None:
    with pytest.raises(BrokerUnavailable, match="ConnectError"):
        make(url=f"http://127.0.0.1:{free_port()}/").publish(message())


def test_gone(make: Make) -> None:
    """410 is not a loss: the message waits, unless the project says that it is given up."""
    Receiver.status = 410
    with pytest.raises(Gone):
        make().publish(message())
    given_up: list[Any] = []
    make(gone=lambda self, message: given_up.append(message)).publish(sent := message())
    assert given_up == [sent]


@pytest.mark.parametrize(
    ("said", "headers", "error"),
    [
        ({}, {"no name": "a"}, httpx.LocalProtocolError),
        ({}, {"x": "ü\n"}, Exception),
        ({"url": "ftp://127.0.0.1/"}, {}, httpx.UnsupportedProtocol),
        ({"url": "http://shop:port/"}, {}, httpx.InvalidURL),
    ],
    ids=["name", "value", "scheme", "address"],
)
def test_what_http_cannot_say(make: Make, said: Any, headers: Any, error: type[Exception]) -> None:
    """It is the fault of the message: mistaken for a lost receiver, it would delay all others."""
    with pytest.raises(error) as raised:
        make(**said).publish(message(headers=headers))
    assert not isinstance(raised.value, BrokerUnavailable)
    assert Receiver.arrived == []


def test_receivers(make: Make) -> None:
    """A publisher may choose address and secret by the message."""
    publisher = make(secrets=())
    publisher.receiver = lambda message: (f"{publisher.url}{message.topic}", (THEIRS,))  # type: ignore[method-assign]
    publisher.publish(message())
    assert verified(THEIRS)["type"] == "order.paid"


@pytest.mark.any_database
@pytest.mark.django_db(transaction=True)
def test_published_twice_received_once(live_server: LiveServer, make: Make) -> None:
    """The view of the page on messages verifies what we sign, and knows a second publishing by
    `webhook-id`.
    """
    data = {"user_id": UserFactory().pk, "amount": 2499, "currency": "eur", "card": "tok_visa"}
    publisher = make(url=f"{live_server.url}/webhook/", secrets=(settings.WEBHOOK_SECRET,))
    sent = message(topic="order.confirmed", payload=data)
    for _ in range(2):
        publisher.publish(sent)
    assert Charge.objects.count() == 1
    publisher.publish(message(topic="order.confirmed", payload=data))
    assert Charge.objects.count() == 2
