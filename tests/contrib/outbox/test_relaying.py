"""A batch: published, then deleted or marked as failed, in one transaction."""

from __future__ import annotations

import logging
import re
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_idempotency.contrib.outbox import relaying
from django_idempotency.contrib.outbox.models import Message
from django_idempotency.contrib.outbox.relaying import LONGEST_BACK_OFF, describe_error
from django_idempotency.errors import BrokerUnavailable

from .helpers import Recorder, committed, numbers, sent, waiting

pytestmark = committed


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


def make_due() -> None:
    Message.objects.update(not_before=None)


def test_published_and_forgotten(recorder: Recorder) -> None:
    sent("", "a", "a")
    assert len(recorder.relay().batch().published) == 3
    assert (recorder.seen, waiting()) == ([("", 0), ("a", 1), ("a", 2)], [])
    assert not recorder.relay().batch()


def test_what_the_publisher_sees(recorder: Recorder) -> None:
    """The publisher sees the whole message, under the id that send() returned."""
    seen: list[Message] = []
    recorder.before = seen.append
    (message_id,) = sent("a", topic="payment.created")
    recorder.relay().batch()
    assert (seen[0].message_id, seen[0].topic, seen[0].key, seen[0].payload) == (
        message_id,
        "payment.created",
        "a",
        0,
    )
    assert (seen[0].headers, seen[0].attempts) == ({}, 0)


@pytest.mark.parametrize("count", [10, 50])
@pytest.mark.parametrize("keys", [1, 5, 0])
def test_statements(recorder: Recorder, count: int, keys: int) -> None:
    """50 messages take as many as 10. Savepoints do not count.

    A look, its keys, the heads, those behind, and the note that the attempt begins; all of them
    again, and a DELETE.
    """
    sent(*(f"key-{n % keys}" if keys else "" for n in range(count)))
    relay = recorder.relay()
    with CaptureQueriesContext(connection) as captured:
        assert len(relay.batch().published) == count
    asked = [
        verb
        for query in captured
        if (verb := query["sql"].split()[0].strip("(")) in ("SELECT", "DELETE", "UPDATE")
    ]
    look = ["SELECT"] * (2 if keys else 1)
    # One more statement for failures; and it looks before the write lock, too.
    if connection.vendor == "sqlite":
        look = [*look, "SELECT", "UPDATE", *look, "SELECT"]
    again = ["UPDATE", "SELECT"] if connection.vendor == "sqlite" else ["SELECT"]
    assert asked == [*look, *["SELECT"] * (2 if keys else 1), "UPDATE", *again, "DELETE"]


def test_statements_of_failures(recorder: Recorder) -> None:
    """Each failure takes one statement, by its primary key."""
    recorder.bad = {0, 2}
    sent(*[""] * 10)
    relay = recorder.relay()
    with CaptureQueriesContext(connection) as captured:
        relay.batch()
    updates = [
        query["sql"]
        for query in captured
        if "last_error" in query["sql"] and query["sql"].startswith("UPDATE")
    ]
    assert len(updates) == 2
    assert all(re.search(r"WHERE .*\bid. = \d+", sql) for sql in updates)
    assert [number for _, number in waiting()] == [0, 2]


def test_a_failure_holds_its_key_and_no_other(recorder: Recorder) -> None:
    recorder.bad = {1}
    sent("a", "a", "a", "b", "", "a", "b")
    batch = recorder.relay().batch()
    assert [message.payload for message in batch.failed] == [1]
    assert numbers(recorder.seen, "a") == [0]
    assert (numbers(recorder.seen, "b"), numbers(recorder.seen, "")) == ([3, 6], [4])
    assert waiting() == [("a", 1), ("a", 2), ("a", 5)]
    assert not recorder.relay().batch()  # no other message overtakes it
    recorder.bad.clear()
    make_due()
    recorder.relay().batch()
    assert numbers(recorder.seen, "a") == [0, 1, 2, 5]


def test_a_failure_is_noted(recorder: Recorder, caplog: Any) -> None:
    recorder.bad = {0}
    recorder.error = ValueError(
        "no exchange at amqp://shop:geheim@host/, password=hunter2\n" + "x" * 500
    )
    (message_id,) = sent("")
    with caplog.at_level(logging.WARNING):
        recorder.relay().batch()
    message = Message.objects.get()
    assert message.attempts == 1
    assert message.last_error.startswith("ValueError: no exchange at amqp://[redacted]@host/")
    assert len(message.last_error) == 255
    assert "geheim" not in message.last_error + caplog.text
    assert "hunter2" not in message.last_error + caplog.text
    assert f"Message {message_id} to topic was not published, attempt 1" in caplog.text


@pytest.mark.parametrize(
    ("attempts", "seconds"), [(0, 1), (1, 2), (4, 16), (8, 256), (9, 300), (10_000, 300)]
)
def test_back_off(recorder: Recorder, attempts: int, seconds: int) -> None:
    """The back-off doubles each time, up to five minutes."""
    recorder.bad = {0}
    sent("")
    Message.objects.update(attempts=attempts)
    recorder.relay().batch()
    message = Message.objects.get()
    assert message.not_before is not None
    wait = message.not_before - datetime.now(timezone.utc)
    assert timedelta(seconds=seconds - 1) < wait <= timedelta(seconds=seconds)
    assert seconds <= LONGEST_BACK_OFF


@pytest.mark.parametrize("error", [BrokerUnavailable(), ConnectionResetError()])
def test_the_broker_is_away(recorder: Recorder, error: Exception) -> None:
    """What was published is deleted, nothing more is tried, and the message that met it waits: it
    may be the cause.
    """
    recorder.bad, recorder.error = {2}, error
    sent("", "", "", "", "")
    batch = recorder.relay().batch()
    assert batch.away is error
    assert [number for _, number in waiting()] == [2, 3, 4]
    assert list(Message.objects.filter(attempts=1).values_list("payload", flat=True)) == [2]


def test_stopping(recorder: Recorder) -> None:
    """The relay stops after the current message."""
    sent("", "", "")
    assert len(recorder.relay(stopping=lambda: len(recorder.seen) == 2).batch().published) == 2
    assert [number for _, number in waiting()] == [2]


def test_a_slow_broker_does_not_make_long_transactions(
    recorder: Recorder, monkeypatch: Any
) -> None:
    """A batch publishes at least one message, and none after that time."""
    monkeypatch.setattr(relaying, "LONGEST", -1)
    monkeypatch.setattr(relaying, "LONGEST_ALONE", -1)
    sent("", "", "")
    relay = recorder.relay()
    assert [len(relay.batch().published) for _ in range(4)] == [1, 1, 1, 0]


def test_the_connection_breaks_before_commit(recorder: Recorder) -> None:
    """The messages are published again, under the same ids: at least once."""
    ids = sent("a", "a")
    seen = []

    def publish(message: Message) -> None:
        seen.append(message.message_id)
        if len(seen) == 2:
            connection.connection.close()

    recorder.before = publish
    with pytest.raises(Exception, match=r"(?i)closed|interface|lost|gone|0"):
        recorder.relay().batch()
    connection.close()
    recorder.relay().batch()
    assert seen == [*ids, *ids]


def test_not_inside_a_transaction(recorder: Recorder) -> None:
    """Inside another transaction it would keep its locks, and the DELETE could be rolled back."""
    sent("")
    with transaction.atomic(), pytest.raises(RuntimeError, match="durable"):
        recorder.relay().batch()


def test_told() -> None:
    assert describe_error(ValueError()) == "ValueError"
    assert describe_error(ValueError("a\n  b")) == "ValueError: a b"


def test_attempts_stay_exact(recorder: Recorder) -> None:
    """Each failure adds one."""
    recorder.bad = {0}
    sent("")
    for _ in range(3):
        make_due()
        recorder.relay().batch()
    assert Message.objects.get().attempts == 3
