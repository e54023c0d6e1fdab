"""Official clients over real HTTP: first, retry, lost answer, another request, two at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from uuid import uuid4

import pytest

from ....faults.proxy import Proxy
from ..api.stage import Stage
from ..clients import CLIENTS, Client, Lost, Refused, gocardless, mollie


def clients(chosen: Callable[[Client], bool] = lambda _: True) -> pytest.MarkDecorator:
    """Run a test with each client, or with those that do a thing by themselves."""
    found = [client for client in CLIENTS if chosen(client)]
    return pytest.mark.parametrize(
        "client", found, ids=[f"{client.package}-{client.index}" for client in found]
    )


def payments() -> int:
    from ..api.models import Payment

    return Payment.objects.count()


@pytest.fixture
def url(server: Proxy) -> str:
    return f"http://127.0.0.1:{server.port}"


@clients()
def test_a_retry_gets_the_first_answer(client: Client, url: str, stage: Stage) -> None:
    """The same call under the same key returns what the first one has: one payment."""
    key = str(uuid4())
    assert client.pay(url, key, 500, 0) == client.pay(url, key, 500, 0)
    assert payments() == 1


@clients()
def test_a_lost_answer(client: Client, url: str, stage: Stage, server: Proxy) -> None:
    """The connection breaks after the commit and before the answer.

    The retry, its own if it has one, gets the answer.
    """
    key = str(uuid4())
    stage.lose(server)
    if client.after_loss:
        made = client.pay(url, key, 500, 2)
    else:
        with pytest.raises(Lost):
            client.pay(url, key, 500, 2)
        made = client.pay(url, key, 500, 2)
    assert payments() == 1
    assert len(stage.statuses) == 2
    assert client.pay(url, key, 500, 0) == made


@clients(lambda client: client.own_key)
def test_a_key_of_the_clients_own(client: Client, url: str, stage: Stage, server: Proxy) -> None:
    """Its user has not thought of a key.

    The client has, and a lost answer is no second payment either.
    """
    stage.lose(server)
    client.pay(url, "", 500, 2)
    assert payments() == 1
    assert stage.replays == 1


@clients()
def test_another_request(client: Client, url: str, stage: Stage) -> None:
    """Its key used for another amount: the client raises its own error, at once, and no second
    payment is made.
    """
    key = str(uuid4())
    client.pay(url, key, 500, 2)
    with pytest.raises(Refused) as refused:
        client.pay(url, key, 700, 2)
    assert refused.value.args == client.mismatch
    assert payments() == 1
    assert len(stage.statuses) == 2


def held(client: Client, url: str, key: str, stage: Stage) -> tuple[threading.Thread, list[str]]:
    """Start a payment that is held in its view until another request has been refused."""
    made: list[str] = []
    stage.hold()
    first = threading.Thread(target=lambda: made.append(client.pay(url, key, 500, 0)))
    first.start()
    assert stage.entered.wait(30)
    return first, made


@clients()
def test_two_at_once(client: Client, url: str, stage: Stage) -> None:
    """While the first is running, the client of the second raises its own error."""
    key = str(uuid4())
    first, made = held(client, url, key, stage)
    with pytest.raises(Refused) as refused:
        client.pay(url, key, 500, 0)
    first.join(30)
    assert refused.value.args == client.running
    assert client.pay(url, key, 500, 0) == made[0]
    assert payments() == 1


@clients(lambda client: client.while_running)
def test_it_comes_back_by_itself(client: Client, url: str, stage: Stage) -> None:
    """A client that retries a busy call gets the first answer without its user noticing."""
    key = str(uuid4())
    first, made = held(client, url, key, stage)
    second = client.pay(url, key, 500, 2)
    first.join(30)
    assert [second] == made
    assert payments() == 1


@clients(lambda client: client.after_failure)
def test_it_comes_back_after_a_failure(client: Client, url: str, stage: Stage) -> None:
    """The server fails after its work, which is undone.

    The client comes back by itself: one payment, and no replay.
    """
    stage.fail()
    client.pay(url, str(uuid4()), 500, 2)
    assert payments() == 1
    assert stage.statuses[0] == 503
    assert len(stage.statuses) == 2
    assert stage.replays == 0


@pytest.mark.parametrize("conflicting", [False, True], ids=["as-stored", "as-gocardless-does"])
def test_gocardless_gets_the_payment(
    conflicting: bool, url: str, stage: Stage, server: Proxy
) -> None:
    """After a lost answer its client takes the replay, or a 409 that names the payment, which it
    then gets.
    """
    stage.conflicting = conflicting
    stage.lose(server)
    made = gocardless(url, str(uuid4()), 500, 2)
    from ..api.models import Payment

    assert made == str(Payment.objects.get().pk)
    assert stage.statuses == [201, 409 if conflicting else 201]
    assert stage.replays == 1


def test_mollie_notices_a_replay(url: str, stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """Its client reads `Idempotent-Replayed`, and warns of a key that was used before."""
    key = str(uuid4())
    mollie(url, key, 500, 0)
    assert "Idempotent-Replayed" not in caplog.text
    mollie(url, key, 500, 0)
    assert f"the Idempotency-Key used in the request was '{key}'" in caplog.text
