"""djangorestframework-idempotency-key, its decorator under its middleware, and our mixin."""

from __future__ import annotations

import pytest

from ..shop import scenarios
from ..shop.scenarios import Seen
from .conftest import See

THEIRS = "djangorestframework-idempotency-key"
OURS = "ours"


def test_another_user(see: See) -> None:
    """Another user sends the same key and body."""
    assert see(THEIRS, scenarios.by_another_user) == Seen((201, 201), 1)
    assert see(OURS, scenarios.by_another_user) == Seen((201, 201), 2)


def test_strangers(see: See) -> None:
    """The view is open to clients without a user."""
    assert see(THEIRS, scenarios.by_strangers) == Seen((201, 201), 1)
    assert see(OURS, scenarios.by_strangers) == Seen((400, 400), 0)


def test_without_permission(see: See) -> None:
    """The user has lost the permission, and retries."""
    for site in (THEIRS, OURS):
        assert see(site, scenarios.without_permission) == Seen((201, 403), 1)


def test_at_once(see: See) -> None:
    """A retry comes while the first request runs."""
    assert see(THEIRS, scenarios.at_once) == Seen((409, 201), 1, None)
    assert see(OURS, scenarios.at_once) == Seen((409, 201), 1, "1")


def test_past_the_lock(see: See) -> None:
    """It has run for longer than `IDEMPOTENCY_KEY_LOCK_TIMEOUT`."""
    assert see(THEIRS, scenarios.past_the_lock) == Seen((201, 201), 2)
    assert see(OURS, scenarios.past_the_lock) == Seen((409, 201), 1, "1")


def test_another_amount(see: See) -> None:
    """A used key comes with another body."""
    assert see(THEIRS, scenarios.of_another_amount) == Seen((201, 409), 1)
    assert see(OURS, scenarios.of_another_amount) == Seen((201, 422), 1)


def test_reordered(see: See) -> None:
    """It comes with the same JSON in another order."""
    assert see(THEIRS, scenarios.reordered) == Seen((201, 409), 1)
    assert see(OURS, scenarios.reordered) == Seen((201, 201), 1)


def test_another_query(see: See) -> None:
    """It comes with another query string."""
    assert see(THEIRS, scenarios.of_another_query) == Seen((201, 201), 1)
    assert see(OURS, scenarios.of_another_query) == Seen((201, 422), 1)


def test_raising(see: See) -> None:
    """The view writes, and then raises; a retry follows."""
    for site in (THEIRS, OURS):
        assert see(site, scenarios.raising) == Seen((500, 201), 1)


def test_failing(see: See) -> None:
    """The view writes, and then returns a 500; a retry follows."""
    assert see(THEIRS, scenarios.failing) == Seen((500, 500), 1)
    assert see(OURS, scenarios.failing) == Seen((500, 201), 1)


def test_a_crash(see: See) -> None:
    """The worker dies between the write and the record; retries follow."""
    for site in (THEIRS, OURS):
        assert see(site, scenarios.dying) == Seen((409, 201), 1)


def test_refused(see: See) -> None:
    """The view returns a 400, and the client corrects the body."""
    for site in (THEIRS, OURS):
        assert see(site, scenarios.corrected) == Seen((400, 201), 2)


def test_refused_by_raising(see: See) -> None:
    """The view raises a `ValidationError`, and the client corrects the body."""
    assert see(THEIRS, scenarios.corrected_after_raising) == Seen((400, 409), 0)
    assert see(OURS, scenarios.corrected_after_raising) == Seen((400, 201), 2)


def test_declined(see: See) -> None:
    """The view refuses with 402; a retry follows."""
    for site in (THEIRS, OURS):
        assert see(site, scenarios.declined) == Seen((402, 402), 1)


def test_headers(see: See) -> None:
    """Headers of the first response, and of its replay."""
    assert see(THEIRS, scenarios.headers).told == ({}, {})
    both = {"Location": "…", "X-Receipt": "r-1"}
    assert see(OURS, scenarios.headers).told == (
        {**both, "Idempotency-Status": "created", "Set-Cookie": "basket"},
        {**both, "Idempotency-Status": "replayed", "Idempotent-Replayed": "true"},
    )


@pytest.mark.parametrize("scenario", [scenarios.plain, scenarios.streamed])
def test_other_responses(see: See, scenario: scenarios.Scenario) -> None:
    """The view returns another response than REST framework's."""
    assert see(THEIRS, scenario).statuses[0] == 500
    assert see(OURS, scenario).statuses[0] == 200


def test_required_keys(see: See) -> None:
    """There is no key."""
    assert see(THEIRS, scenarios.under(None)) == Seen((400,), 0)
    assert see(OURS, scenarios.under(None, "required/")) == Seen((400,), 0)
    assert see(OURS, scenarios.under(None)) == Seen((201,), 1)


def test_other_keys(see: See) -> None:
    """The key is not a UUID."""
    assert see(THEIRS, scenarios.under("order-7")) == Seen((500,), 0)
    assert see(OURS, scenarios.under("order-7")) == Seen((201,), 1)
    assert see(OURS, scenarios.under("order-7"), KEY_FORMAT="uuid") == Seen((400,), 0)


def test_expiry(see: See) -> None:
    """A retry comes two days later."""
    assert see(THEIRS, scenarios.after(days=2)) == Seen((201, 201), 1)
    assert see(OURS, scenarios.after(days=2)) == Seen((201, 201), 2)
