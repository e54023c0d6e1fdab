"""A dialect through each entry point. What each says is in tests/core/dialects."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.test import override_settings
from django.utils.http import http_date

from django_idempotency.errors import KeyMalformed, RequestMismatch
from django_idempotency.models import IdempotencyRecord
from tests.support.dialects import DIALECTS

from .conftest import CHARGE, Connect, Sender, effects

pytestmark = [pytest.mark.any_database, pytest.mark.django_db(transaction=True)]


@pytest.fixture(params=["draft", "stripe", "paypal", "square", "repeatability"])
def name(request: pytest.FixtureRequest) -> Any:
    with override_settings(IDEMPOTENCY={"PROFILE": DIALECTS[request.param]}):
        yield request.param


def send(sender: Sender, name: str, key: object, **body: Any) -> Any:
    """Send a charge with a key where the profile has it."""
    profile, headers, charge = DIALECTS[name], {}, {**CHARGE, **body}
    if profile.carrier == "body":
        charge[profile.field] = key
    else:
        headers[profile.field] = f'"{key}"' if profile.spelling == "quoted" else str(key)
        if profile.first_sent_field:
            headers[profile.first_sent_field] = http_date()
    return sender(charge, key=None, headers=headers)


def test_the_rows(entry_point: Sender, name: str) -> None:
    """First, replay, another request and a malformed key are as the profile says, and one effect is
    left.
    """
    profile, key = DIALECTS[name], str(uuid4())
    first, replay = send(entry_point, name, key), send(entry_point, name, key)
    if profile.carrier == "body" and "middleware" in entry_point.url:  # which looks into no body
        assert (effects(), IdempotencyRecord.objects.count()) == (2, 0)
        return
    assert (first.status_code, replay.status_code) == (201, profile.replays_as.get(201, 201))
    assert (replay["Idempotent-Replayed"], replay.content) == ("true", first.content)
    mismatch, malformed = send(entry_point, name, key, amount=1), send(entry_point, name, "\x7f")
    assert (mismatch.status_code, malformed.status_code) == (
        profile.status_of(RequestMismatch),
        profile.status_of(KeyMalformed),
    )
    kind = profile.error_type
    assert mismatch["Content-Type"] == malformed["Content-Type"] == kind
    said = [answer.get("Repeatability-Result") for answer in (first, replay, mismatch, malformed)]
    assert said == (["accepted"] * 2 + ["rejected"] * 2 if profile.sets else [None] * 4)
    echoed = [
        key if answer.status_code in profile.echoes else None
        for answer in (first, replay, mismatch)
    ]
    assert [answer.get(profile.field) for answer in (first, replay, mismatch, malformed)] == [
        *echoed,
        None,
    ]
    assert (effects(), IdempotencyRecord.objects.count()) == (1, 1)


def test_the_default_header_is_no_key_then(name: str, user: User, connect: Connect) -> None:
    """A profile with a carrier of its own does not read ours."""
    sender = connect("/plain/charges/", user)
    if DIALECTS[name].field != "Idempotency-Key":
        assert [sender().status_code, sender().status_code] == [201, 201]
        assert (effects(), IdempotencyRecord.objects.count()) == (2, 0)


def test_a_method_without_keys(entry_point: Sender) -> None:
    """A profile that refuses a key on an unguarded method does so everywhere, before anything
    runs.
    """
    with override_settings(IDEMPOTENCY={"PROFILE": DIALECTS["repeatability"], "METHODS": ["PUT"]}):
        answer = send(entry_point, "repeatability", uuid4())
    assert (answer.status_code, answer["Repeatability-Result"]) == (501, "rejected")
    assert (effects(), IdempotencyRecord.objects.count()) == (0, 0)
