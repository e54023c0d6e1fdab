"""idempotency_stores reseal reaches the steps and the outgoing calls, too."""

from __future__ import annotations

import base64
import io
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone
from pytest_django import Settings

from django_idempotency.contrib.client.messages import Answer, pack_answer, unpack_answer
from django_idempotency.contrib.client.models import OutgoingCall
from django_idempotency.contrib.steps.journal import Journal, load
from django_idempotency.contrib.steps.models import Step
from django_idempotency.contrib.steps.rules import StepState

pytestmark = pytest.mark.django_db

OLD, NEW = (base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2))
CANARY = "canary-4711"


def raw() -> bytes:
    """Return what the two tables hold."""
    step, call = Step.objects.get(), OutgoingCall.objects.get()
    return bytes(step.result or b"") + bytes(call.response or b"")


@pytest.fixture
def written(settings: Settings) -> UUID:
    """Write a step and a call under the old key."""
    settings.IDEMPOTENCY = {"ENCRYPTION_KEYS": [OLD]}
    of = Step(run=uuid4(), record=uuid4(), operation=uuid4(), store="default", attempt=1)
    journal = Journal(of=of, using="default", ttl=60)
    journal.insert(
        Step(
            name="charge", position=1, state=StepState.DONE, result=b'1:"' + CANARY.encode() + b'"'
        )
    )
    call = uuid4()
    answer = Answer(status=200, headers=(("X-Who", CANARY),), body=CANARY.encode())
    now = timezone.now()
    OutgoingCall.objects.create(
        id=call,
        provider="fake",
        name="order-1",
        key="k",
        state="succeeded",
        attempts=1,
        first_sent=now,
        last_sent=now,
        response_status=200,
        response=pack_answer(call, answer),
    )
    return call


def reseal(settings: Settings, *keys: Any) -> str:
    settings.IDEMPOTENCY = {"ENCRYPTION_KEYS": list(keys)}
    out = io.StringIO()
    call_command("idempotency_stores", "reseal", stdout=out)
    return out.getvalue()


def test_the_new_key_alone_opens_them(settings: Settings, written: UUID) -> None:
    """After resealing the old key is not needed; nothing is in plain before or after."""
    assert CANARY.encode() not in raw()
    before = raw()
    said = reseal(settings, NEW, OLD)
    assert "1 values of steps resealed" in said
    assert "1 parts of outgoing calls resealed" in said
    assert raw() != before
    assert CANARY.encode() not in raw()
    settings.IDEMPOTENCY = {"ENCRYPTION_KEYS": [NEW]}
    assert load(Step.objects.get()) == CANARY
    stored = OutgoingCall.objects.get().response
    assert stored is not None
    assert unpack_answer(written, bytes(stored), status=200).body == CANARY.encode()
    assert "values of steps" not in reseal(settings, NEW)


def test_a_key_that_is_gone(settings: Settings, written: UUID) -> None:
    """What cannot be opened is counted and left."""
    before = raw()
    with pytest.raises(CommandError, match="1 values of steps"):
        reseal(settings, NEW)
    assert raw() == before
