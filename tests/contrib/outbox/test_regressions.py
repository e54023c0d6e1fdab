"""Found in a second review of the outbox: messages out of order, lost, or published again and
again.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DEFAULT_DB_ALIAS, Error, connection, connections, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from django_idempotency import idempotent_function
from django_idempotency.contrib import outbox
from django_idempotency.contrib.outbox import relaying, taking
from django_idempotency.contrib.outbox.models import Message
from django_idempotency.contrib.outbox.relaying import Relay
from django_idempotency.errors import ConfigurationError, OutsideTransaction
from django_idempotency.testing import override_idempotency

from . import publishers
from .helpers import Recorder, committed, numbers, sent, waiting

server = pytest.mark.skipif(connection.vendor == "sqlite", reason="one writer at a time")


def in_thread(act: Any) -> Any:
    def run() -> None:
        try:
            act()
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def slow_writer(key: str, number: int) -> Any:
    """Send in another connection. Return a function that commits it, and waits until it has."""
    has_sent, may_commit = threading.Event(), threading.Event()

    def write() -> None:
        with transaction.atomic():
            outbox.send("topic", number, key=key)
            has_sent.set()
            assert may_commit.wait(10)

    thread = in_thread(write)
    assert has_sent.wait(10)

    def commit() -> None:
        may_commit.set()
        thread.join()

    return commit


@committed
@server
def test_writers_one_at_a_time_are_in_order() -> None:
    """The recipe of docs/how-to/outbox.md: the second writer of a key begins after the first has
    committed.
    """
    recorder = Recorder()
    relay = recorder.relay()
    commit = slow_writer("account", 1)  # position 1
    sent("other")  # position 2
    relay.batch()  # a sweep: the first message there is 2
    commit()
    with transaction.atomic():
        outbox.send("topic", 2, key="account")  # position 3
    relay.batch()  # no sweep
    relay._taker._swept = float("-inf")  # five seconds later
    relay.batch()
    assert numbers(recorder.seen, "account") == [1, 2]


@committed
@server
def test_writers_one_at_a_time_are_in_order_across_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same between two pages of one look: the first page is older than the second."""
    monkeypatch.setattr(taking, "PAGE", 2)
    recorder, real, pages = Recorder(), taking.sort, []
    sent("bad", "bad")
    commit = slow_writer("account", 1)
    sent("bad")
    Message.objects.filter(pk=Message.objects.order_by("pk")[0].pk).update(
        not_before=in_five_minutes()
    )

    def sort(rows: Any, *, due: Any) -> Any:
        pages.append(rows)
        if len(pages) == 1:  # the first page has been read
            commit()
            thread = in_thread(lambda: sent("account"))
            thread.join()
            Message.objects.filter(key="account", payload=0).update(payload=2)
        return real(rows, due=due)

    monkeypatch.setattr(taking, "sort", sort)
    for _ in range(4):
        recorder.relay().batch()
    assert numbers(recorder.seen, "account") == [1, 2]


@committed
@pytest.mark.parametrize(("bad", "good"), [("a", "A"), ("a", "á"), ("a", "a ")])
def test_a_key_that_collates_alike_is_not_blocked(
    monkeypatch: pytest.MonkeyPatch, bad: str, good: str
) -> None:
    """MariaDB's usual collations treat these as equal: failures on the first page would hide the
    others permanently.
    """
    monkeypatch.setattr(taking, "PAGE", 2)
    sent(bad, bad, bad, good, bad)
    Message.objects.filter(payload=0).update(not_before=in_five_minutes())
    recorder = Recorder()
    recorder.relay().batch()
    assert recorder.seen == [(good, 3)]


@committed
@pytest.mark.parametrize(
    "said", ["bad byte \x00 in reply", "file \udcff not found"], ids=["nul", "surrogate"]
)
def test_no_exception_of_a_publisher_stops_the_relay(said: str) -> None:
    sent("", "bad", "")
    recorder = Recorder()
    recorder.bad, recorder.error = {"bad"}, ValueError(said)
    recorder.relay().batch()
    assert waiting() == [("bad", 1)]


class AsyncPublisher:
    async def publish(self, message: Any) -> None:
        raise AssertionError("never even begun")


async def async_publish(message: Any) -> None:
    raise AssertionError("never even begun")


@committed
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", ["AsyncPublisher", "async_publish"])
def test_an_async_publisher_loses_nothing(name: str) -> None:
    sent("", "")
    with suppress(CommandError):
        call_command(
            "idempotency_relay",
            "--once",
            f"--publisher=tests.contrib.outbox.test_regressions.{name}",
        )
    assert len(waiting()) == 2


@committed
def test_a_publisher_that_breaks_the_transaction() -> None:
    """A publisher's own write, such as an audit row, fails: this is a failure of the message like
    any other.
    """
    sent("a", "bad", "b")
    taken, seen = Message.objects.all()[0].message_id, []

    def publish(message: Any) -> None:
        seen.append(message.payload)
        if message.key == "bad":
            Message(message_id=taken, topic="audit", payload=0, created_at=message.created_at).save(
                force_insert=True
            )

    relay = Relay(publish, using=DEFAULT_DB_ALIAS)
    for _ in range(3):
        with suppress(Error):
            relay.batch()
    assert seen == [0, 1, 2]
    assert waiting() == [("bad", 1)]


@pytest.mark.django_db
def test_all_of_many_pages_are_tried_again(admin_client: Client) -> None:
    sent(*[""] * 150)
    Message.objects.update(attempts=3, not_before=in_five_minutes())
    pks = list(Message.objects.order_by("pk").values_list("pk", flat=True))
    url = reverse("admin:idempotency_outbox_message_changelist")
    page = admin_client.get(url).content.decode()
    assert "Select all 150 messages" in page
    admin_client.post(
        url, {"action": "try_again", "select_across": "1", "_selected_action": pks[:100]}
    )
    assert Message.objects.filter(not_before__lte=datetime.now(timezone.utc)).count() == 150


@committed
@pytest.mark.parametrize(
    "bad",
    [
        ("t", "\ud800", ""),
        ("t\x00", 1, ""),
        ("t", 1, "k\x00"),
        ("t\ud800", 1, ""),
        ("t", {"a\ud800": 1}, ""),
    ],
)
def test_what_no_database_holds_is_refused_while_the_transaction_is_good(bad: Any) -> None:
    topic, payload, key = bad
    with transaction.atomic():
        outbox.send("t", 1)
        with suppress(TypeError, ValueError):
            outbox.send(topic, payload, key=key)
        outbox.send("t", 2)


@committed
def test_a_relay_that_could_not_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without autocommit its transaction never ends: whatever was published would be published
    again without end.
    """
    sent("")
    recorder = Recorder()
    connection.close()
    monkeypatch.setitem(connection.settings_dict, "AUTOCOMMIT", False)
    try:
        with pytest.raises(ConfigurationError, match='Take "AUTOCOMMIT": False out of DATABASES'):
            recorder.relay().batch()
        with pytest.raises(CommandError, match="is not in autocommit"):
            call_command(
                "idempotency_relay", "--once", "--publisher=tests.contrib.outbox.publishers.broken"
            )
    finally:
        monkeypatch.undo()
        connection.close()
    assert recorder.seen == []


async def coroutine() -> None: ...


def generator() -> Iterator[None]:
    yield


async def async_generator() -> AsyncIterator[None]:
    yield


@committed
@pytest.mark.parametrize("promise", [coroutine, generator, async_generator, Future])
def test_a_promise_is_not_a_confirmation(promise: Any) -> None:
    """A coroutine that never runs, or a pending Future, may still fail: deleted now, the message
    would be lost.
    """
    sent("")
    batch = Relay(lambda message: promise(), using=DEFAULT_DB_ALIAS).batch()
    assert not batch.published
    assert Message.objects.get().last_error.startswith("TypeError: publish() returned a")


class Clock:
    """Time as the relay sees it, in seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, start = 0.0, datetime.now(timezone.utc)
        for module in (relaying, taking):
            monkeypatch.setattr(module, "utcnow", lambda: start + timedelta(seconds=self.now))
            monkeypatch.setattr(module.time, "monotonic", lambda: self.now)


@committed
@pytest.mark.parametrize("behind", [0, 3])
def test_attempts_that_time_out_do_not_take_all_of_the_time(
    monkeypatch: pytest.MonkeyPatch, behind: int
) -> None:
    """Twelve endpoints are down, 30 seconds each: more than the longest back-off.

    Messages for others continue.
    """
    monkeypatch.setattr(taking, "PAGE", 10)
    clock, recorder = Clock(monkeypatch), Recorder()
    recorder.bad = {f"down-{number}" for number in range(12)}

    def take_time(message: Message) -> None:
        clock.now += 30 if message.key in recorder.bad else 1

    recorder.before = take_time
    sent(*sorted(recorder.bad) * (1 + behind))
    relay = recorder.relay()
    for _ in range(150):
        relay.batch()
    sent(*[""] * 15)
    sent_at = clock.now
    while len(recorder.seen) < 15:
        relay.batch()
        assert clock.now - sent_at <= 120
    attempts = sum(Message.objects.values_list("attempts", flat=True))
    for _ in range(80):  # and those that are down have their turns, beside traffic
        sent("")
        relay.batch()
    assert sum(Message.objects.values_list("attempts", flat=True)) > attempts


@committed
def test_once_ends_although_failures_are_due_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message is tried once, although failing at all of them takes longer than the longest
    back-off.
    """
    clock, recorder = Clock(monkeypatch), Recorder()
    recorder.bad = {"down"}

    def take_time(message: Message) -> None:
        clock.now += 30
        recorder.seen.append((message.key, message.payload))
        if len(recorder.seen) > 50:
            raise KeyboardInterrupt
        raise recorder.error

    sent(*[""] * 20)
    monkeypatch.setattr(publishers, "broken", take_time)
    with pytest.raises(CommandError, match="20 failed"):
        call_command(
            "idempotency_relay",
            "--once",
            "--batch=5",
            "--publisher=tests.contrib.outbox.publishers.broken",
        )
    assert [number for _, number in recorder.seen] == list(range(20))


@committed
@pytest.mark.parametrize(("key", "enabled"), [(None, True), ("k", False)])
def test_a_guard_that_does_not_guard_opens_no_transaction(key: str | None, enabled: bool) -> None:
    """send() then needs the project's own transaction, which also works inside a guard."""

    @idempotent_function(key="key", key_prefix="relying")
    def relying(key: str | None) -> None:
        outbox.send("topic", 1)

    @idempotent_function(key="key", key_prefix="opening")
    def opening(key: str | None) -> None:
        with transaction.atomic():
            outbox.send("topic", 2)

    with override_idempotency(enabled=enabled):
        with pytest.raises(OutsideTransaction):
            relying(key)
        opening(key)
    relying("guarded")
    opening("guarded")
    assert [payload for _, payload in waiting()] == [2, 1, 2]


@committed
def test_a_look_at_many_keys_that_wait_is_not_quadratic(monkeypatch: pytest.MonkeyPatch) -> None:
    """No statement names more keys than two pages hold: with 70,000 waiting keys, a look took half
    a minute.
    """
    monkeypatch.setattr(taking, "PAGE", 10)
    sent(*(f"waits-{number}" for number in range(100)), "waits-0", "waits-99", "due")
    last = Message.objects.order_by("pk")[99].pk
    Message.objects.filter(pk__lte=last).update(not_before=in_five_minutes())
    recorder = Recorder()
    with CaptureQueriesContext(connection) as captured:
        recorder.relay().batch()
    assert [key for key, _ in recorder.seen] == ["due"]
    assert max(query["sql"].count("waits-") for query in captured) <= 20


def in_five_minutes() -> datetime:
    return datetime.now(timezone.utc) + timedelta(minutes=5)
