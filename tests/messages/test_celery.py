"""Celery on a real RabbitMQ: workers that are killed halfway, and messages that arrive twice."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from kombu import Queue
from kombu.exceptions import OperationalError

from testproject.celery import app
from testproject.payments.models import Charge, Effect
from testproject.payments.tasks import charge_order

from ..support.services import needs_rabbitmq
from .broker import RabbitMQServer
from .mail import Mail

pytestmark = [needs_rabbitmq, pytest.mark.faults, pytest.mark.either_server]

#: One process does everything; or a child does the work.
SOLO, CHILD = "--pool=solo", "--concurrency=1"
SUCCEEDED = re.compile(r"charge_order\[[\w-]+\] succeeded in [\d.]+s: (\d+)")


@pytest.fixture
def mail(rabbitmq: RabbitMQServer, tmp_path: Path, transactional_db: None) -> Iterator[Mail]:
    """Return Celery's queue, empty; tasks sent from here go to it, too."""
    with closing(Mail(rabbitmq.url, "celery", tmp_path)) as mail:
        app.conf.broker_url = rabbitmq.url.partition("?")[0]
        yield mail
        mail.end()
        app.close()
        mail.purge()


@pytest.fixture
def order(user: User) -> dict[str, Any]:
    return {"order_id": "o-1", "user_id": user.pk, "amount": 2499}


def worker(mail: Mail, *options: str) -> subprocess.Popen[bytes]:
    """Start a worker, and wait until it takes messages."""
    before = mail.log.count(" ready.")
    command = [
        "-m",
        "celery",
        "--app=testproject",
        "worker",
        "--loglevel=INFO",
        "--without-mingle",
        "--without-gossip",
    ]
    process = mail.start(*command, f"--hostname=w{before}", *options)
    mail.until(lambda: mail.log.count(" ready.") > before, "the worker is ready")
    return process


def test_killed_in_the_middle(mail: Mail, order: dict[str, Any]) -> None:
    """RabbitMQ redelivers, and the next worker takes over: one effect, and the same key for the
    card network.
    """
    worker(mail, CHILD)
    charge_order.delay(**order, card="tok_slow")
    mail.until(lambda: "attempt 1" in mail.log, "it is at work")
    mail.end()  # SIGKILL to all its processes
    assert not Effect.objects.exists()
    worker(mail, CHILD)
    assert_taken_over(mail)


def test_a_child_killed_in_the_middle(mail: Mail, order: dict[str, Any]) -> None:
    """The worker that lost its child gives the message back, and its next child takes over."""
    worker(mail, CHILD)
    charge_order.delay(**order, card="tok_kill_once")
    assert_taken_over(mail)


def test_a_hard_time_limit(mail: Mail, order: dict[str, Any]) -> None:
    """A task killed by its time limit is redelivered: its work was rolled back, so its message is
    not finished.
    """
    worker(mail, CHILD)
    charge_order.apply_async(kwargs={**order, "card": "tok_slow"}, time_limit=1)
    mail.until(lambda: "Hard time limit (1s) exceeded" in mail.log, "it was killed")
    mail.until(lambda: "attempt 2" in mail.log, "it has come back")


def assert_taken_over(mail: Mail) -> None:
    mail.until(Charge.objects.exists, "the charge is there")
    assert Effect.objects.get().attempt == 2
    (first, first_key), (second, second_key) = re.findall(
        r"attempt (\d), card key (\w{64})", mail.log
    )
    assert (first, second) == ("1", "2")
    assert first_key == second_key
    mail.assert_nothing_left()
    assert Charge.objects.count() == 1


def test_sent_twice(mail: Mail, order: dict[str, Any]) -> None:
    """Both tasks succeed, with one result; the order decides, not the task's id."""
    for _ in range(2):
        charge_order.delay(**order)
    worker(mail, SOLO)
    mail.until(lambda: len(SUCCEEDED.findall(mail.log)) == 2, "both have succeeded")
    assert SUCCEEDED.findall(mail.log) == [str(Charge.objects.get().pk)] * 2
    mail.assert_nothing_left()


def test_a_busy_one_is_retried(mail: Mail, order: dict[str, Any]) -> None:
    """Two workers get the same order: one returns later, and is a duplicate in the end."""
    for _ in range(2):
        worker(mail, SOLO)
    charge_order.delay(**order, card="tok_slow")
    mail.until(lambda: "attempt 1" in mail.log, "the first is at work")
    charge_order.delay(**order, card="tok_slow")
    mail.until(lambda: "Retry in 1s" in mail.log, "one is busy")
    mail.until(lambda: len(SUCCEEDED.findall(mail.log)) == 2, "both have succeeded")
    assert Effect.objects.count() == Charge.objects.count() == 1
    mail.assert_nothing_left()


def test_a_failing_one(mail: Mail, order: dict[str, Any]) -> None:
    """A failing task is retried after 1 and 2 seconds.

    It leaves nothing behind, and its order is not blocked.
    """
    worker(mail, SOLO)
    charge_order.delay(**order, card="tok_down")
    mail.until(lambda: "Retry in 2s" in mail.log, "it has failed twice")
    assert not Effect.objects.exists()
    charge_order.delay(**order)
    mail.until(Charge.objects.exists, "the charge is there")
    mail.until(lambda: len(SUCCEEDED.findall(mail.log)) == 2, "the retry is a duplicate")
    mail.assert_nothing_left()


def test_another_amount(mail: Mail, order: dict[str, Any]) -> None:
    """The same order for more money is a mistake: a dead letter."""
    charge_order.delay(**order)
    charge_order.delay(**{**order, "amount": 9999})
    worker(mail, SOLO)
    _, body = mail.await_dead()
    assert b"9999" in body
    assert Charge.objects.get().amount == 2499


def test_a_declined_card(mail: Mail, order: dict[str, Any]) -> None:
    """A declined card is a result: the task fails with it each time, and is not retried."""
    for _ in range(2):
        charge_order.delay(**order, card="tok_declined")
    worker(mail, SOLO)
    mail.until(lambda: mail.log.count("raised unexpected: Declined") == 2, "both were declined")
    mail.assert_nothing_left()
    assert "Retry in" not in mail.log
    assert not Charge.objects.exists()


def test_a_message_that_the_broker_refuses(mail: Mail, order: dict[str, Any]) -> None:
    """The sender gets an error, so the message is not lost in silence.

    A refused retry becomes a dead letter.
    """
    full = Queue("full", queue_arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    with app.connection_for_write() as connection, app.amqp.Producer(connection) as producer:
        charge_order.apply_async(kwargs=order, producer=producer)
        charge_order.apply_async(kwargs=order, producer=producer, queue=full)
        with pytest.raises(OperationalError):
            charge_order.apply_async(kwargs=order, producer=producer, queue=full)
