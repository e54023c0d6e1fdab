"""What all doors promise alike."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from django_idempotency.models import IdempotencyRecord

from .conftest import KEY, Connect, Sender, effects

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_retry_gets_the_first_answer(door: Sender) -> None:
    """Same status, same bytes, same headers, one effect; only the replay says that it is one."""
    first, retry = door(), door()
    assert (first.status_code, retry.status_code) == (201, 201)
    assert retry.content == first.content
    assert "Idempotency-Replayed" not in first
    assert retry["Idempotency-Replayed"] == "true"
    assert {**retry.headers} == {**first.headers, "Idempotency-Replayed": "true", "Idempotency-Status": "replayed"}
    assert effects() == 1


def test_without_a_key_every_request_runs(door: Sender) -> None:
    """No key, no promise, no record."""
    if door.url == "/api/charges/":
        pytest.skip("requires a key")
    assert [door(key=None).status_code, door(key=None).status_code] == [201, 201]
    assert effects() == 2
    assert not IdempotencyRecord.objects.exists()


def test_another_body_under_the_key_is_refused(door: Sender) -> None:
    """422, and the original keeps replaying."""
    first = door()
    other = door({"amount": 1, "currency": "inr"})
    assert (other.status_code, other["Content-Type"]) == (422, "application/problem+json")
    assert other.json()["code"] == "request-mismatch"
    assert door().content == first.content
    assert effects() == 1


def test_the_body_counts_by_value(door: Sender) -> None:
    """Order and spacing of JSON do not make another request."""
    assert door('{"amount": 2499, "currency": "inr"}').status_code == 201
    assert door('{"currency":"inr","amount":2499}')["Idempotency-Replayed"] == "true"


def test_a_quoted_key_is_the_same_key(door: Sender) -> None:
    """`"k"` (structured field) and `k` (Stripe) are one."""
    door(key=KEY)
    assert door(key=f'"{KEY}"')["Idempotency-Replayed"] == "true"


@pytest.mark.parametrize("key", ["", "a,b"])
def test_a_malformed_key_is_refused(door: Sender, key: str) -> None:
    """400, and nothing ran or was stored. http/test_keys.py has what else is malformed."""
    answer = door(key=key)
    assert (answer.status_code, answer.json()["code"]) == (400, "key-malformed")
    assert effects() == 0
    assert not IdempotencyRecord.objects.exists()


def test_a_refused_body_may_be_corrected_under_the_same_key(door: Sender) -> None:
    """400 is not remembered, and does not bind the fingerprint."""
    assert door({"amount": -1, "currency": "inr"}).status_code == 400
    assert door().status_code == 201
    assert IdempotencyRecord.objects.get().attempt == 2


def test_keys_of_two_users_never_meet(door: Sender, other_user: User, connect: Connect) -> None:
    """Another user's key is another key: not shown, not blocked."""
    first = door()
    theirs = connect(door.url, other_user)()
    assert (theirs.status_code, "Idempotency-Replayed" in theirs) == (201, False)
    assert theirs.content != first.content
    assert effects() == 2
