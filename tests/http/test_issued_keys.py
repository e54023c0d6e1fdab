"""Keys that the server issues: what is ours, for whom, for which address."""

from __future__ import annotations

import base64
from datetime import datetime, timedelta, timezone

import pytest
from django.test import RequestFactory, override_settings
from hypothesis import given
from hypothesis import strategies as st

from django_idempotency.core.key_formats import ISSUED, ISSUED_SAMPLE, KeyFault, issued_at, spelled
from django_idempotency.errors import KeyForeign
from django_idempotency.http.issued_keys import is_issued, issue, require_bound

NOW = datetime(2026, 11, 23, 12, tzinfo=timezone.utc)
DAY = 86400.0
ALICE, BOB = "user:auth.user:1", "user:auth.user:2"
FACTORY = RequestFactory()


def is_bound(key: str, scope: str = ALICE, method: str = "POST", path: str = "/orders/") -> bool:
    try:
        require_bound(key, scope, FACTORY.generic(method, path))
    except KeyForeign:
        return False
    return True


def test_an_issued_key_is_ours_and_new_each_time() -> None:
    """It has the length that is published, and says when it was issued."""
    first, second = issue(ALICE, NOW), issue(ALICE, NOW)
    assert first != second
    assert is_issued(first)
    assert len(first) == len(ISSUED_SAMPLE)
    assert issued_at(first) == NOW.timestamp() * 1000
    assert spelled(first, ISSUED, now=NOW, ttl=DAY) == first


@pytest.mark.parametrize(
    ("age", "fault"),
    [
        (0.0, None),
        (DAY - 0.001, None),
        (DAY, KeyFault.EXPIRED),
        (-300.0, None),  # issued by a host whose clock is ahead
        (-301.0, KeyFault.AHEAD),
    ],
)
def test_its_lifetime(age: float, fault: KeyFault | None) -> None:
    """As that of a UUIDv7: from the issue, for the ttl of the policy."""
    key = issue(ALICE, NOW)
    assert spelled(key, ISSUED, now=NOW + timedelta(seconds=age), ttl=DAY) == (fault or key)


FORGED = {
    "empty": "",
    "a UUID": "8e03978e-40d5-43e8-bc93-6894a57f9324",
    "the sample": ISSUED_SAMPLE,
    "without a signature": issue(ALICE, NOW).partition(":")[0],
    "cut": issue(ALICE, NOW)[:-1],
    "longer": issue(ALICE, NOW) + "A",
    "a line break": issue(ALICE, NOW) + "\n",
    "other signature": issue(ALICE, NOW).partition(":")[0]
    + ":"
    + issue(ALICE, NOW).partition(":")[2],
    "other identifier": "A" * 22 + issue(ALICE, NOW)[22:],
    "dated later": issue(ALICE, NOW).replace(f"{int(NOW.timestamp() * 1000):011x}", "fffffffffff"),
    "capitals": issue(ALICE, NOW).upper(),
    "another script's digits": issue(ALICE, NOW).replace(".1", ".\u0661", 1),
    "a lone surrogate": "\ud800" + issue(ALICE, NOW)[1:],
}


@pytest.mark.parametrize("key", FORGED.values(), ids=FORGED)
def test_forged(key: str) -> None:
    """What this project has not signed is not ours, whatever it looks like."""
    assert not is_issued(key)


@given(st.data())
def test_no_change_goes_unnoticed(data: st.DataObject) -> None:
    """One other character, anywhere, and it is not ours: a key has one spelling."""
    key = issue(ALICE, NOW)
    place = data.draw(st.integers(0, len(key) - 1))
    other = data.draw(
        st.characters(min_codepoint=32, max_codepoint=126).filter(lambda each: each != key[place])
    )
    assert not is_issued(key[:place] + other + key[place + 1 :])


@given(st.text())
def test_any_text(text: str) -> None:
    """Nothing raises, and nothing is ours by chance."""
    assert not is_issued(text)


@pytest.mark.parametrize(
    ("bound", "used", "accepted"),
    [
        # issued for any address
        ({}, {}, True),
        ({}, {"path": "/elsewhere/", "method": "PUT"}, True),
        ({}, {"scope": BOB}, False),
        # for one
        ({"method": "POST", "path": "/orders/"}, {}, True),
        ({"method": "POST", "path": "/orders/"}, {"path": "/orders/?page=2"}, True),
        ({"method": "POST", "path": "/orders/"}, {"path": "/orders/1/"}, False),
        ({"method": "POST", "path": "/orders/"}, {"method": "PUT"}, False),
        ({"method": "POST", "path": "/orders/"}, {"scope": BOB}, False),
        ({"method": "POST", "path": "/caf\xe9/%/"}, {"path": "/caf%C3%A9/%25/"}, True),
    ],
    ids=range(9),
)
def test_the_binding(bound: dict[str, str], used: dict[str, str], accepted: bool) -> None:
    """The table."""
    assert is_bound(issue(ALICE, NOW, **bound), **used) is accepted


def test_the_borders_of_what_is_bound_cannot_move() -> None:
    """A scope that ends like an address is no address."""
    key = issue('user", "POST", "/orders/', NOW)
    assert not is_bound(key, "user")


def test_a_key_does_not_show_whose_it_is() -> None:
    """Neither the scope nor a hash that can be found out by trying is in it."""
    key = issue(ALICE, NOW, method="POST", path="/orders/")
    parts = key.replace(":", ".").split(".")
    decoded = b"".join(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)) for part in parts)
    assert b"user" not in decoded
    assert b"orders" not in decoded
    # With the same identifier, another project would make another binding.
    with override_settings(SECRET_KEY="another"):
        assert not is_bound(key)


def test_a_changed_secret_key() -> None:
    """Keys of the earlier secret are known while it is among the fallbacks, and not after that."""
    with override_settings(SECRET_KEY="earlier"):
        key = issue(ALICE, NOW, method="POST", path="/orders/")
    with override_settings(SECRET_KEY="new", SECRET_KEY_FALLBACKS=["earlier"]):
        assert is_issued(key)
        assert is_bound(key)
        assert not is_bound(key, BOB)
    with override_settings(SECRET_KEY="new"):
        assert not is_issued(key)
