"""What all entry points promise alike."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from django_idempotency.models import IdempotencyRecord

from .conftest import KEY, Connect, Sender, effects

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_retry_gets_the_first_answer(entry_point: Sender) -> None:
    """A retry has the same status, bytes and headers, and one effect; only the replay is marked as
    one.
    """
    first, retry = entry_point(), entry_point()
    assert (first.status_code, retry.status_code) == (201, 201)
    assert retry.content == first.content
    assert "Idempotent-Replayed" not in first
    assert retry["Idempotent-Replayed"] == "true"
    assert {**retry.headers} == {
        **first.headers,
        "Idempotent-Replayed": "true",
        "Idempotency-Status": "replayed",
    }
    assert effects() == 1


def test_without_a_key_every_request_runs(entry_point: Sender) -> None:
    """Without a key there is no promise and no record."""
    if entry_point.url == "/api/charges/":
        pytest.skip("requires a key")
    assert [entry_point(key=None).status_code, entry_point(key=None).status_code] == [201, 201]
    assert effects() == 2
    assert not IdempotencyRecord.objects.exists()


def test_another_body_under_the_key_is_refused(entry_point: Sender) -> None:
    """Another body gets 422, and the original keeps replaying."""
    first = entry_point()
    other = entry_point({"amount": 1, "currency": "inr"})
    assert (other.status_code, other["Content-Type"]) == (422, "application/problem+json")
    assert other.json()["code"] == "request-mismatch"
    assert entry_point().content == first.content
    assert effects() == 1


def test_the_body_counts_by_value(entry_point: Sender) -> None:
    """Order and spacing of JSON do not make another request."""
    assert entry_point('{"amount": 2499, "currency": "inr"}').status_code == 201
    assert entry_point('{"currency":"inr","amount":2499}')["Idempotent-Replayed"] == "true"


def test_a_quoted_key_is_the_same_key(entry_point: Sender) -> None:
    """`"k"` (structured field) and `k` (Stripe) are the same key."""
    entry_point(key=KEY)
    assert entry_point(key=f'"{KEY}"')["Idempotent-Replayed"] == "true"


@pytest.mark.parametrize("key", ["", "a,b"])
def test_a_malformed_key_is_refused(entry_point: Sender, key: str) -> None:
    """A malformed key gets 400, and nothing runs or is stored. http/test_keys.py has further
    malformed keys.
    """
    answer = entry_point(key=key)
    assert (answer.status_code, answer.json()["code"]) == (400, "key-malformed")
    assert effects() == 0
    assert not IdempotencyRecord.objects.exists()


def test_a_refused_body_may_be_corrected_under_the_same_key(entry_point: Sender) -> None:
    """A 400 is not remembered, and does not bind the fingerprint."""
    assert entry_point({"amount": -1, "currency": "inr"}).status_code == 400
    assert entry_point().status_code == 201
    assert IdempotencyRecord.objects.get().attempt == 2


def test_keys_of_two_users_never_meet(
    entry_point: Sender, other_user: User, connect: Connect
) -> None:
    """Another user's key is another key: its response is not shown, and it blocks no other."""
    first = entry_point()
    theirs = connect(entry_point.url, other_user)()
    assert (theirs.status_code, "Idempotent-Replayed" in theirs) == (201, False)
    assert theirs.content != first.content
    assert effects() == 2
