"""The consumer on a real RabbitMQ: duplicates, kills, and messages that can never succeed."""

from __future__ import annotations

import re
import signal
import subprocess
from typing import Any

import pika
import pytest
from django.contrib.auth.models import User

from testproject.payments.consumer import CRASHES, FAILURES, declare
from testproject.payments.models import Charge, Effect

from ..support.services import needs_rabbitmq
from .mail import Mail

pytestmark = [needs_rabbitmq, pytest.mark.faults, pytest.mark.either_server]


@pytest.fixture
def payload(user: User) -> dict[str, Any]:
    return {"user_id": user.pk, "amount": 2499, "currency": "eur", "card": "tok_visa"}


@pytest.fixture(autouse=True)
def queues(mail: Mail) -> None:
    declare(mail._connection.channel(), mail.queue)


def consumer(mail: Mail, *options: str) -> subprocess.Popen[bytes]:
    return mail.start("manage.py", "consume_payments", f"--queue={mail.queue}", *options)


def await_charges(mail: Mail, count: int) -> None:
    mail.until(lambda: Charge.objects.count() == count, f"{count} charges")


def test_a_duplicate_is_acknowledged(mail: Mail, payload: dict[str, Any]) -> None:
    """Three deliveries have one effect, and the message behind them is not delayed."""
    for message_id in ("m-1", "m-1", "m-1", "m-2"):
        mail.send(payload, message_id)
    consumer(mail)
    await_charges(mail, 2)
    assert Effect.objects.count() == 2
    mail.assert_nothing_left()


def test_killed_in_the_middle(mail: Mail, payload: dict[str, Any]) -> None:
    """RabbitMQ redelivers, and the next consumer takes over: one effect, and the same key for the
    card network.
    """
    mail.send({**payload, "card": "tok_kill_once"})
    assert consumer(mail).wait(20) == -signal.SIGKILL
    assert not Effect.objects.exists()
    consumer(mail)
    await_charges(mail, 1)
    assert Effect.objects.get().attempt == 2
    (first, first_key), (second, second_key) = re.findall(
        r"attempt (\d), card key (\w{64})", mail.log
    )
    assert (first, second) == ("1", "2")
    assert first_key == second_key
    mail.assert_nothing_left()


def test_a_busy_one_is_delivered_again(mail: Mail, payload: dict[str, Any]) -> None:
    """Two consumers get the same message: one is put back as often as needed, and is a duplicate in
    the end.
    """
    slow = {**payload, "card": "tok_slow"}
    for _ in range(2):
        consumer(mail)
    mail.until(lambda: mail.consumers() == 2, "both are there")
    mail.send(slow)
    mail.until(lambda: "attempt 1" in mail.log, "the first is at work")
    mail.send(slow)
    mail.until(lambda: "InProgress" in mail.log, "one is busy")
    await_charges(mail, 1)
    mail.assert_nothing_left()
    assert Effect.objects.count() == 1


def test_another_message_under_a_known_id(mail: Mail, payload: dict[str, Any]) -> None:
    """It becomes a dead letter, at once and unchanged."""
    mail.send(payload)
    mail.send({**payload, "amount": 9999})
    consumer(mail)
    properties, body = mail.await_dead()
    assert properties.message_id == "m-1"
    assert b"9999" in body
    assert Charge.objects.get().amount == 2499


def test_a_message_without_an_id(mail: Mail, payload: dict[str, Any]) -> None:
    """Its duplicate could not be recognised: it becomes a dead letter, without a run."""
    mail.send(payload, None)
    consumer(mail)
    mail.await_dead()
    assert not Effect.objects.exists()


def test_a_failing_one(mail: Mail, payload: dict[str, Any]) -> None:
    """A failing message returns after a pause, up to its limit; others overtake it.

    Then a person may resend it.
    """
    mail.send({**payload, "card": "tok_down"})
    mail.send(payload, "m-2")
    consumer(mail, "--limit=2")
    properties, _ = mail.await_dead()
    assert properties.headers is not None
    assert properties.headers[FAILURES] == 1
    assert mail.log.count("NetworkDown") >= 2
    assert Charge.objects.count() == 1
    mail.send(payload | {"card": "tok_down"})
    mail.until(lambda: "attempt 3" in mail.log, "it runs again")


def test_a_declined_card(mail: Mail, payload: dict[str, Any]) -> None:
    """A declined card is a result: the message is acknowledged, and so is its duplicate."""
    for _ in range(2):
        mail.send({**payload, "card": "tok_declined"})
    mail.send(payload, "m-2")
    consumer(mail)
    await_charges(mail, 1)
    mail.assert_nothing_left()


def test_one_that_kills_every_consumer(mail: Mail, payload: dict[str, Any]) -> None:
    """The broker gives up in the end."""
    mail.send(payload)
    deaths = 0
    while not mail.length(f"{mail.queue}.dead"):
        with pika.BlockingConnection(
            pika.URLParameters(mail.environment["RABBITMQ_URL"])
        ) as connection:
            taken, _, _ = connection.channel().basic_get(mail.queue)
        deaths += taken is not None
        assert deaths <= CRASHES + 1
    assert deaths == CRASHES + 1
