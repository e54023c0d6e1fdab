"""Waiting messages are sealed, opened before they are published, and never published sealed."""

from __future__ import annotations

from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection, transaction
from pytest_django import Settings

from django_idempotency.contrib import outbox
from django_idempotency.contrib.outbox.models import Message
from django_idempotency.contrib.outbox.relaying import Relay
from tests.contrib.at_rest.sealed.keys import FIRST, SECOND

from .helpers import committed

pytestmark = [committed, pytest.mark.any_database]

CANARY = "canary-7f3a"


@pytest.fixture(autouse=True)
def keys(settings: Settings) -> None:
    use(settings, [FIRST])


def use(settings: Settings, keys: list[str | None]) -> None:
    settings.IDEMPOTENCY = {"ENCRYPTION_KEYS": keys}


def send(payload: Any, **headers: Any) -> Message:
    with transaction.atomic():
        message_id = outbox.send("mail", payload, key="user-7", headers=headers)
    return Message.objects.get(message_id=message_id)


def published() -> list[tuple[Any, Any]]:
    seen: list[tuple[Any, Any]] = []
    Relay(lambda message: seen.append((message.payload, message.headers)), using="default").batch()
    return seen


def test_sealed_while_it_waits() -> None:
    """No column has it, the publisher gets what a plain message would have given."""
    moment = datetime(2030, 1, 1, tzinfo=timezone.utc)
    send({"iban": CANARY, "amount": Decimal("5.10"), "at": moment}, trace=CANARY)
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM django_idempotency_message")
        assert CANARY not in repr(cursor.fetchall())
    assert published() == [
        ({"iban": CANARY, "amount": "5.10", "at": "2030-01-01T00:00:00Z"}, {"trace": CANARY})
    ]
    assert not Message.objects.exists()


@pytest.mark.parametrize("now", [[SECOND], []], ids=["another key", "off"])
def test_a_lost_key(settings: Settings, now: list[str | None]) -> None:
    """It waits, and says why; with its key it is published."""
    send(CANARY)
    use(settings, now)
    assert published() == []
    assert "CannotOpen" in Message.objects.get().last_error
    use(settings, [SECOND, FIRST])
    Message.objects.update(not_before=None)
    assert published() == [(CANARY, {})]


def test_swapped_messages() -> None:
    """A message opens under its own id only."""
    first, second = send("first"), send("second")
    Message.objects.filter(pk=first.pk).update(headers=second.headers)
    assert published() == []


def test_messages_from_before(settings: Settings) -> None:
    """One that was sent before there were keys is published as it is, and so is one with None
    first.
    """
    use(settings, [])
    send("plain")
    use(settings, [None, FIRST])
    assert send("also").headers == {}
    assert published() == [("plain", {}), ("also", {})]


def test_our_mark() -> None:
    """A message cannot pretend to be sealed."""
    with pytest.raises(ValueError, match="marks sealed messages"):
        send(1, **{":sealed": "text"})
