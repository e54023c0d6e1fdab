"""drf-idempotencykey, by its mixin, and ours by the mixin."""

from __future__ import annotations

from ..shop import scenarios
from ..shop.scenarios import Seen
from .conftest import See

THEIRS = "drf-idempotencykey"
OURS = "ours"


def test_another_user(see: See) -> None:
    """Another user sends the same key and body."""
    for site in (THEIRS, OURS):
        assert see(site, scenarios.by_another_user) == Seen((201, 201), 2)


def test_strangers(see: See) -> None:
    """The view is open to clients without a user."""
    assert see(THEIRS, scenarios.by_strangers) == Seen((201, 201), 2)
    assert see(OURS, scenarios.by_strangers) == Seen((400, 400), 0)


def test_without_permission(see: See) -> None:
    """The user has lost the permission, and retries."""
    assert see(THEIRS, scenarios.without_permission) == Seen((201, 201), 1)
    assert see(OURS, scenarios.without_permission) == Seen((201, 403), 1)


def test_at_once(see: See) -> None:
    """A retry comes while the first request runs."""
    assert see(THEIRS, scenarios.at_once) == Seen((409, 201), 1, "5")
    assert see(OURS, scenarios.at_once) == Seen((409, 201), 1, "1")


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
    assert see(THEIRS, scenarios.of_another_query) == Seen((201, 409), 1)
    assert see(OURS, scenarios.of_another_query) == Seen((201, 422), 1)


def test_raising(see: See) -> None:
    """The view writes, and then raises; a retry follows."""
    assert see(THEIRS, scenarios.raising) == Seen((500, 409), 1)
    assert see(OURS, scenarios.raising) == Seen((500, 201), 1)


def test_failing(see: See) -> None:
    """The view writes, and then returns a 500; a retry follows."""
    assert see(THEIRS, scenarios.failing) == Seen((500, 201), 2)
    assert see(OURS, scenarios.failing) == Seen((500, 201), 1)


def test_a_crash(see: See) -> None:
    """The worker dies between the write and the record; retries follow, the last one an hour
    later.
    """
    assert see(THEIRS, scenarios.dying_long_ago) == Seen((409, 409, 201), 2)
    assert see(OURS, scenarios.dying_long_ago) == Seen((409, 201, 201), 1)


def test_refused(see: See) -> None:
    """The view refuses with 400, and the client corrects the body."""
    for scenario in (scenarios.corrected, scenarios.corrected_after_raising):
        for site in (THEIRS, OURS):
            assert see(site, scenario) == Seen((400, 201), 2)


def test_declined(see: See) -> None:
    """The view refuses with 402; a retry follows."""
    assert see(THEIRS, scenarios.declined) == Seen((402, 201), 2)
    assert see(OURS, scenarios.declined) == Seen((402, 402), 1)


def test_delete(see: See) -> None:
    """A `DELETE` is retried."""
    assert see(THEIRS, scenarios.by_method("DELETE")) == Seen((201, 201), 2)
    assert see(OURS, scenarios.by_method("DELETE")) == Seen((201, 201), 1)


def test_streams(see: See) -> None:
    """The response was a stream."""
    assert see(THEIRS, scenarios.streamed) == Seen((200, 201), 2)
    assert see(OURS, scenarios.streamed) == Seen((200, 409), 1)


def test_long_responses(see: See) -> None:
    """It was longer than 1 MiB."""
    assert see(THEIRS, scenarios.long) == Seen((200, 200), 1)
    assert see(OURS, scenarios.long) == Seen((200, 409), 1)
    assert see(OURS, scenarios.long, MAX_BODY=2 * 1024 * 1024) == Seen((200, 200), 1)


def test_binary_responses(see: See) -> None:
    """It was a PDF."""
    assert see(THEIRS, scenarios.binary) == Seen((200, 200), 1, (b"%PDF\xff", b""))
    assert see(OURS, scenarios.binary) == Seen((200, 200), 1, (b"%PDF\xff", b"%PDF\xff"))


def test_headers(see: See) -> None:
    """Headers of the first response, and of its replay."""
    both = {"Location": "…", "X-Receipt": "r-1"}
    cookie = {"Set-Cookie": "basket"}
    assert see(THEIRS, scenarios.headers).told == (
        {**both, **cookie},
        {**both, **cookie, "Cached-From-Idempotency-Key": "…"},
    )
    assert see(OURS, scenarios.headers).told == (
        {**both, **cookie, "Idempotency-Status": "created"},
        {**both, "Idempotency-Status": "replayed", "Idempotent-Replayed": "true"},
    )


def test_required_keys(see: See) -> None:
    """A key is required, and there is none."""
    for site in (THEIRS, OURS):
        assert see(site, scenarios.under(None, "required/")) == Seen((400,), 0)


def test_other_keys(see: See) -> None:
    """The key is not a UUID."""
    assert see(THEIRS, scenarios.under("order-7")) == Seen((400,), 0)
    assert see(OURS, scenarios.under("order-7")) == Seen((201,), 1)
    assert see(OURS, scenarios.under("order-7"), KEY_FORMAT="uuid") == Seen((400,), 0)


def test_expiry(see: See) -> None:
    """A retry comes two hours later."""
    assert see(THEIRS, scenarios.after(hours=2)) == Seen((201, 201), 2)
    assert see(OURS, scenarios.after(hours=2)) == Seen((201, 201), 1)
