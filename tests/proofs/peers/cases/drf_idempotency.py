"""drf-idempotency, by its middleware, and ours by the middleware."""

from __future__ import annotations

from django.core.checks import run_checks
from drf_idempotency.settings import DEFAULTS

from django_idempotency import conf

from ..shop import scenarios
from ..shop.scenarios import Seen
from ..shop.sites import Shop
from .conftest import See

THEIRS = "drf-idempotency"
OURS = "ours by middleware"


def test_the_setting(see: See) -> None:
    """The setting `IDEMPOTENCY` has the other package's names."""
    assert see(THEIRS, scenarios.retried, REQUIRED=False) == Seen((500, 500), 0)
    found: list[str | None] = []

    def check(shop: Shop) -> Seen:
        found.extend(error.id for error in run_checks() if "REQUIRE_KEY" in error.msg)
        return Seen((), 0)

    see(OURS, check, REQUIRE_KEY=False)
    assert found == ["django_idempotency.E002"]


def test_another_user(see: See) -> None:
    """Another user sends the same key and body."""
    assert see(THEIRS, scenarios.by_another_user) == Seen((201, 201), 1)
    assert see(OURS, scenarios.by_another_user) == Seen((201, 201), 2)


def test_a_stranger(see: See) -> None:
    """Somebody who has not logged in sends a used key."""
    assert see(THEIRS, scenarios.by_a_stranger) == Seen((201, 201), 1)
    assert see(OURS, scenarios.by_a_stranger) == Seen((201, 403), 1)


def test_without_permission(see: See) -> None:
    """The user has lost the permission, and retries."""
    assert see(THEIRS, scenarios.without_permission) == Seen((201, 201), 1)
    assert see(OURS, scenarios.without_permission) == Seen((201, 403), 1)


def test_strangers(see: See) -> None:
    """The view is open to clients without a user."""
    assert see(THEIRS, scenarios.by_strangers) == Seen((201, 201), 1)
    assert see(OURS, scenarios.by_strangers) == Seen((201, 201), 2)
    assert see("ours", scenarios.by_strangers) == Seen((400, 400), 0)


def test_at_once(see: See) -> None:
    """A retry comes while the first request runs."""
    assert see(THEIRS, scenarios.at_once) == Seen((409, 201), 1, None)
    assert see(OURS, scenarios.at_once) == Seen((409, 201), 1, "1")


def test_past_the_lock(see: See) -> None:
    """It has run for longer than `LOCK_TTL_SECONDS`."""
    assert see(THEIRS, scenarios.past_the_lock) == Seen((201, 201), 2)
    assert see(OURS, scenarios.past_the_lock) == Seen((409, 201), 1, "1")


def test_another_amount(see: See) -> None:
    """A used key comes with another body."""
    for site in (THEIRS, OURS):
        assert see(site, scenarios.of_another_amount) == Seen((201, 422), 1)


def test_reordered(see: See) -> None:
    """It comes with the same JSON in another order."""
    assert see(THEIRS, scenarios.reordered) == Seen((201, 422), 1)
    assert see(OURS, scenarios.reordered) == Seen((201, 201), 1)


def test_another_query(see: See) -> None:
    """It comes with another query string."""
    assert see(THEIRS, scenarios.of_another_query) == Seen((201, 201), 1)
    assert see(OURS, scenarios.of_another_query) == Seen((201, 422), 1)


def test_failures(see: See) -> None:
    """The view writes, and then raises or returns a 500; a retry follows."""
    for scenario in (scenarios.raising, scenarios.failing):
        assert see(THEIRS, scenario) == Seen((500, 201), 2)
        assert see(OURS, scenario) == Seen((500, 201), 1)


def test_a_crash(see: See) -> None:
    """The worker dies between the write and the record; retries follow."""
    assert see(THEIRS, scenarios.dying) == Seen((409, 201), 2)
    assert see(OURS, scenarios.dying) == Seen((409, 201), 1)


def test_refused(see: See) -> None:
    """The view refuses with 400, and the client corrects the body."""
    for scenario in (scenarios.corrected, scenarios.corrected_after_raising):
        assert see(THEIRS, scenario) == Seen((400, 422), 1)
        assert see(OURS, scenario) == Seen((400, 201), 2)


def test_declined(see: See) -> None:
    """The view refuses with 402; a retry follows."""
    for site in (THEIRS, OURS):
        assert see(site, scenarios.declined) == Seen((402, 402), 1)


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


def test_headers(see: See) -> None:
    """Headers of the first response, and of its replay."""
    both = {"Location": "…", "X-Receipt": "r-1"}
    cookie = {"Set-Cookie": "basket"}
    assert see(THEIRS, scenarios.headers).told == (
        {**both, "Idempotency-Key": "…", "Idempotent-Replayed": "false", **cookie},
        {**both, "Idempotency-Key": "…", "Idempotent-Replayed": "true"},
    )
    assert see(OURS, scenarios.headers).told == (
        {**both, "Idempotency-Status": "created", **cookie},
        {**both, "Idempotency-Status": "replayed", "Idempotent-Replayed": "true"},
    )


def test_required_keys(see: See) -> None:
    """A key is required, and there is none."""
    assert see(THEIRS, scenarios.under(None), REQUIRE_KEY=True) == Seen((400,), 0)
    assert see(OURS, scenarios.under(None), REQUIRED=True) == Seen((400,), 0)


def test_other_keys(see: See) -> None:
    """The key has quotes around it, or a space in it."""
    for key in ('"order-7"', "order 7"):
        assert see(THEIRS, scenarios.under(key)) == Seen((400,), 0)
        assert see(OURS, scenarios.under(key)) == Seen((201,), 1)


def test_expiry(see: See) -> None:
    """A retry comes two days later."""
    assert DEFAULTS["TTL_SECONDS"] == conf.defaults()["TTL"] == 24 * 60 * 60
    for site in (THEIRS, OURS):
        assert see(site, scenarios.after(days=2)) == Seen((201, 201), 2)
