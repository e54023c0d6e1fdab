"""Relays that die, each a process: an attempt is noted before it is made, and only the message that
kills is blamed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection
from django.db.models import Q

from django_idempotency.contrib.outbox.models import SET_ASIDE, Message
from django_idempotency.contrib.outbox.relaying import MAX_ATTEMPTS
from django_idempotency.contrib.outbox.taking import Taker
from django_idempotency.stores.base import utcnow

from .deaths import KILLED
from .helpers import Recorder, committed, sent

ROOT = Path(__file__).resolve().parents[3]

pytestmark = committed


def happened(name: str, tmp_path: Path) -> Any:
    """Run the program, and return what happened."""
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "testproject.settings",
        "DATABASE_NAME": str(connection.settings_dict["NAME"]),
        "PUBLISHED_FILE": str(tmp_path / "published"),
    }
    command = [sys.executable, "-m", "tests.contrib.outbox.deaths", name]
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.mark.faults
@pytest.mark.sqlite
@pytest.mark.parametrize("topic", ["kills", "kills after"])
def test_a_message_that_kills_its_relay(tmp_path: Path, topic: str) -> None:
    """It is set aside after five deaths.

    Nothing else is sent more than twice, what was behind it only once, in order.
    """
    found = happened(topic, tmp_path)
    assert found["codes"].count(KILLED) == MAX_ATTEMPTS
    seen = found["published"][-1]
    others = Counter(number for number in seen if number != 2)
    assert others == {0: 2, 1: 2, 3: 1, 5: 1, 6: 1}
    assert [number for number in dict.fromkeys(seen) if number in (1, 3, 6)] == [1, 3, 6]
    # They have not waited for it: after its second death they were published.
    assert set(found["published"][2]) - {2} == {0, 1, 3, 5, 6}
    killer, behind = found["left"]
    assert (killer["payload"], killer["attempts"], killer["unended"]) == (
        2,
        MAX_ATTEMPTS,
        MAX_ATTEMPTS,
    )
    assert killer["not_before"].startswith(str(SET_ASIDE.year))
    assert killer["last_error"].startswith("5 attempts to publish this message did not end")
    # Of its key, so it would overtake. It was in the first batch, and has not been tried since.
    assert (behind["payload"], behind["attempts"], behind["unended"]) == (4, 1, 1)


@pytest.mark.faults
@pytest.mark.sqlite
def test_a_death_at_any_border(tmp_path: Path) -> None:
    """Nothing is lost, nothing is sent more than twice, each key keeps its order, and nobody is set
    aside.
    """
    borders = happened("borders", tmp_path)["borders"]
    died = [border for border in borders if border["code"] == KILLED]
    assert len(died) > 20
    assert {tuple(border["first"]) for border in died} >= {(), (0, 1, 2, 3)}
    for border in borders:
        seen = border["first"] + border["again"]
        assert set(seen) == {0, 1, 2, 3}, border
        assert max(Counter(seen).values()) <= 2, border
        for numbers in (border["first"], border["again"]):
            assert [number for number in numbers if number in (0, 2)] == sorted(
                set(numbers) & {0, 2}
            ), border
        assert border["left"] == [], border


def test_an_attempt_is_noted_before_it_is_made() -> None:
    """Somebody else sees it while the publisher works; afterwards nothing of it is left."""
    sent("a", "a", "")
    recorder = Recorder()
    seen: list[Any] = []
    recorder.before = lambda message: seen.append((message.attempts, message.unended))
    noted: list[Any] = []
    relay = recorder.relay()
    begin = relay._taker.begin

    def begun(messages: Any) -> None:
        begin(messages)
        noted.extend(Message.objects.order_by("pk").values_list("attempts", "unended"))

    relay._taker.begin = begun  # type: ignore[method-assign]
    relay.batch()
    assert noted == [(1, 1)] * 3
    assert seen == [(0, 1)] * 3  # a publisher is told how often it has failed before
    assert not Message.objects.exists()


def test_what_a_batch_does_not_come_to_has_no_attempt() -> None:
    """A relay that is stopped, a broker that is away, and a message behind one that failed."""
    sent("", "", "")
    recorder = Recorder()
    recorder.relay(stopping=lambda: len(recorder.seen) == 1).batch()
    assert list(Message.objects.values_list("attempts", "unended")) == [(0, 0)] * 2
    recorder.bad, recorder.error = {1}, ConnectionError()
    recorder.relay().batch()
    assert list(Message.objects.order_by("pk").values_list("attempts", "unended")) == [
        (1, 0),
        (0, 0),
    ]


def test_a_lost_race_is_nobodys_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of what was published nor of what failed: the database rolled back how both had
    ended.
    """
    sent("", "", "")
    recorder = Recorder()
    recorder.bad = {1}

    def lost(*_: Any) -> bool:
        raise OperationalError("database is locked")

    with monkeypatch.context() as patch:
        patch.setattr(Taker, "forget", lost)
        with pytest.raises(OperationalError, match="locked"):
            recorder.relay().batch()
    assert [number for _, number in recorder.seen] == [0, 2]
    assert (
        list(Message.objects.values_list("attempts", "unended", "not_before")) == [(0, 0, None)] * 3
    )


def test_a_failure_ends_the_attempts_without_an_end() -> None:
    """Only deaths in a row count: a message that has failed in between has not killed."""
    sent("")
    Message.objects.update(attempts=4, unended=4)
    recorder = Recorder()
    recorder.bad = {0}
    recorder.relay().batch()
    message = Message.objects.get()
    assert (message.attempts, message.unended) == (5, 0)
    assert message.last_error == "ValueError: no such exchange"


def test_suspects_are_published_alone() -> None:
    """So only one can be blamed for the next death.

    What comes before them is a batch of its own.
    """
    sent("", "", "a", "a", "")
    # MySQL finds no number with IN.
    died = Q(payload=1) | Q(payload=2) | Q(payload=3)
    Message.objects.filter(died).update(attempts=1, unended=1)
    relay = Recorder().relay()
    batches = [[message.payload for message in relay.batch().published] for _ in range(6)]
    assert batches == [[0], [1], [2], [3], [4], []]


def test_what_another_relay_has_taken_meanwhile_is_left_to_it() -> None:
    """Between the note and the publishing another relay may have noted an attempt: then its key is
    not ours.
    """
    sent("a", "", "a")
    recorder = Recorder()
    relay = recorder.relay()
    hold = relay._taker.hold

    def held(noted: Any) -> Any:
        Message.objects.filter(payload=0).update(attempts=2, unended=2)
        relay._taker.hold = hold  # type: ignore[method-assign]
        return hold(noted)

    relay._taker.hold = held  # type: ignore[method-assign]
    assert [message.payload for message in relay.batch().published] == [1]
    assert recorder.seen == [("", 1)]
    assert list(Message.objects.order_by("pk").values_list("payload", "attempts", "unended")) == [
        (0, 2, 2),
        (2, 0, 0),
    ]


def test_a_suspect_that_is_not_tried_stays_as_it_was() -> None:
    sent("")
    Message.objects.update(attempts=1, unended=1)
    Recorder().relay(stopping=lambda: True).batch()
    message = Message.objects.get()
    assert (message.attempts, message.unended, message.not_before) == (1, 1, None)


def test_set_aside(caplog: pytest.LogCaptureFixture) -> None:
    """It is named in the log, nothing tries it again, and those of its key wait; `max_attempts`
    says after how many deaths.
    """
    message_id, *_ = sent("a", "a", "b")
    Message.objects.filter(payload=0).update(attempts=2, unended=2)
    recorder = Recorder()
    relay = recorder.relay(max_attempts=2)
    aside = relay.batch()
    assert [message.payload for message in aside.set_aside] == [0]
    assert bool(aside)
    assert f"Message {message_id} to topic is set aside" in caplog.text
    relay.batch()
    assert not relay.batch()
    assert recorder.seen == [("b", 2)]
    assert [message.is_set_aside for message in Message.objects.order_by("pk")] == [True, False]


def test_nobody_is_set_aside_for_the_death_of_a_batch() -> None:
    """Each is published alone first, however few deaths are allowed."""
    sent("", "")
    Message.objects.update(attempts=1, unended=1)
    recorder = Recorder()
    relay = recorder.relay(max_attempts=1)
    assert [len(relay.batch().published) for _ in range(3)] == [1, 1, 0]


def test_an_exit_counts_as_a_death() -> None:
    """`sys.exit()` in a publisher ends its relay, at each restart."""
    sent("", "", "")
    recorder = Recorder()

    def leave(message: Message) -> None:
        if message.payload == 1:
            sys.exit(1)

    recorder.before = leave
    deaths = 0
    for _ in range(20):
        Message.objects.filter(not_before__lt=SET_ASIDE).update(not_before=utcnow())
        try:
            if not recorder.relay().batch():
                break
        except SystemExit:
            deaths += 1
    assert deaths == MAX_ATTEMPTS
    assert Counter(number for _, number in recorder.seen) == {0: 2, 2: 1}
    assert Message.objects.get().is_set_aside


def test_the_command_sets_aside() -> None:
    """It says how many, and fails with --once."""
    sent("")
    Message.objects.update(attempts=2, unended=2)
    with pytest.raises(CommandError, match="1 failed"):
        call_command(
            "idempotency_relay",
            "--once",
            "--max-attempts=2",
            "--publisher=tests.contrib.outbox.publishers.broken",
        )
    assert Message.objects.get().is_set_aside
