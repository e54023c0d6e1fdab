"""idemkit's mixin for REST framework, on Redis, and ours by the mixin; and its functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

from django.db import connection, transaction
from idemkit import HttpConfig, MethodConfig
from idemkit import idempotent_sync as theirs
from idemkit.core.config import resolve_http_config

from django_idempotency import conf, idempotent_function

from ..shop import scenarios
from ..shop.models import Charge
from ..shop.scenarios import Seen
from ..shop.settings import LOCK
from ..shop.views import REDIS
from .conftest import See

THEIRS = "idemkit"
OURS = "ours"


def test_another_user(see: See) -> None:
    """Another user sends the same key and body."""
    for site in (THEIRS, OURS):
        assert see(site, scenarios.by_another_user) == Seen((201, 201), 2)


def test_strangers(see: See) -> None:
    """The view is open to clients without a user."""
    assert see(THEIRS, scenarios.by_strangers) == Seen((201, 201), 1)
    assert see(OURS, scenarios.by_strangers) == Seen((400, 400), 0)


def test_without_permission(see: See) -> None:
    """The user has lost the permission, and retries."""
    for site in (THEIRS, OURS):
        assert see(site, scenarios.without_permission) == Seen((201, 403), 1)


def test_another_path(see: See) -> None:
    """A used key comes to another path."""
    assert see(THEIRS, scenarios.elsewhere) == Seen((201, 201), 2)
    assert see(OURS, scenarios.elsewhere) == Seen((201, 422), 1)


def test_another_amount(see: See) -> None:
    """It comes with another body, or another query string."""
    for scenario in (scenarios.of_another_amount, scenarios.of_another_query):
        for site in (THEIRS, OURS):
            assert see(site, scenario) == Seen((201, 422), 1)


def test_reordered(see: See) -> None:
    """It comes with the same JSON in another order."""
    for site in (THEIRS, OURS):
        assert see(site, scenarios.reordered) == Seen((201, 201), 1)


def test_at_once(see: See) -> None:
    """A retry comes while the first request runs."""
    assert resolve_http_config(HttpConfig()).wait_timeout_seconds == 10
    assert see(THEIRS, scenarios.at_once) == Seen((201, 201), 1, None)
    assert see(OURS, scenarios.at_once) == Seen((409, 201), 1, "1")
    assert see(OURS, scenarios.at_once, WAIT=10) == Seen((201, 201), 1, None)


def test_past_the_lock(see: See) -> None:
    """It has run for longer than `lease_ttl_seconds`."""
    assert see(THEIRS, scenarios.past_the_lock) == Seen((201, 201), 2)
    assert see(OURS, scenarios.past_the_lock) == Seen((409, 201), 1, "1")


def test_failures(see: See) -> None:
    """The view writes, and then raises or returns a 500; a retry follows."""
    for scenario in (scenarios.raising, scenarios.failing):
        assert see(THEIRS, scenario) == Seen((500, 201), 2)
        assert see(OURS, scenario) == Seen((500, 201), 1)


def test_a_crash(see: See) -> None:
    """The worker dies between the write and the record; retries follow."""
    assert see(THEIRS, scenarios.dying) == Seen((423, 201), 2)
    assert see(OURS, scenarios.dying) == Seen((409, 201), 1)


def test_refused(see: See) -> None:
    """The view refuses with 400, and the client corrects the body."""
    for scenario in (scenarios.corrected, scenarios.corrected_after_raising):
        for site in (THEIRS, OURS):
            assert see(site, scenario) == Seen((400, 201), 2)


def test_declined(see: See) -> None:
    """The view refuses with 402; a retry follows."""
    assert see(THEIRS, scenarios.declined) == Seen((402, 201), 2)
    assert see(OURS, scenarios.declined) == Seen((402, 402), 1)


def test_without_content(see: See) -> None:
    """The response was a 204."""
    assert see(THEIRS, scenarios.without_content) == Seen((204, 201), 2)
    assert see(OURS, scenarios.without_content) == Seen((204, 204), 1)


def test_long_responses(see: See) -> None:
    """It was longer than 1 MiB."""
    assert see(THEIRS, scenarios.long) == Seen((200, 201), 2)
    assert see(OURS, scenarios.long) == Seen((200, 409), 1)


def test_other_responses(see: See) -> None:
    """The view returns another response than REST framework's."""
    assert see(THEIRS, scenarios.plain).statuses[0] == 500
    assert see(OURS, scenarios.plain) == Seen((200, 200), 1)


def test_methods(see: See) -> None:
    """A `PUT` or a `DELETE` is retried."""
    for method in ("PUT", "DELETE"):
        assert see(THEIRS, scenarios.by_method(method)) == Seen((201, 201), 2)
        assert see(OURS, scenarios.by_method(method)) == Seen((201, 201), 1)


def test_headers(see: See) -> None:
    """Headers of the first response, and of its replay."""
    first = {"Location": "…", "X-Receipt": "r-1", "Set-Cookie": "basket"}
    assert see(THEIRS, scenarios.headers).told == (
        first,
        {"Location": "…", "Idempotency-Replayed": "true"},
    )
    assert see(OURS, scenarios.headers).told == (
        {**first, "Idempotency-Status": "created"},
        {
            "Location": "…",
            "X-Receipt": "r-1",
            "Idempotency-Status": "replayed",
            "Idempotent-Replayed": "true",
        },
    )


def test_required_keys(see: See) -> None:
    """A key is required, and there is none."""
    for site in (THEIRS, OURS):
        assert see(site, scenarios.under(None, "required/")) == Seen((400,), 0)


def test_expiry(see: See) -> None:
    """How long a response is replayed."""
    assert HttpConfig().expires_after_seconds == conf.defaults()["TTL"] == 24 * 60 * 60


def guards(function: Callable[..., Any]) -> list[Callable[..., Any]]:
    """Return a function that is given an order, under their decorator and under ours."""
    name = str(uuid4())
    config = MethodConfig(key_fields=["order"], scope=lambda: name, lease_ttl_seconds=LOCK)
    return [
        theirs(backend=REDIS, config=config)(function),
        idempotent_function(key="order", key_prefix=name)(function),
    ]


def test_results(see: See) -> None:
    """A function returns a tuple, and is called again."""

    def charge(order: int) -> tuple[int, str]:
        return order, "paid"

    see(OURS, scenarios.retried)
    assert [[guarded(order=7), guarded(order=7)] for guarded in guards(charge)] == [
        [(7, "paid"), [7, "paid"]],
        [(7, "paid"), (7, "paid")],
    ]


def test_functions_in_a_transaction(see: See) -> None:
    """A function writes, and the transaction of its caller is rolled back."""

    def charge(order: int) -> int:
        Charge.objects.create(amount=order)
        if not connection.in_atomic_block:
            connection.close()  # the thread is another one
        return order

    see(OURS, scenarios.under("k"))
    left = []
    for guarded in guards(charge):
        Charge.objects.all().delete()
        with transaction.atomic():
            guarded(order=7)
            transaction.set_rollback(True)
        left.append(Charge.objects.count())
    assert left == [1, 0]


def test_functions_that_raise(see: See) -> None:
    """A function writes, and then raises; it is called again."""
    fails: list[Exception] = []

    def charge(order: int) -> int:
        Charge.objects.create(amount=order)
        if not connection.in_atomic_block:
            connection.close()
        if fails:
            raise fails.pop()
        return order

    see(OURS, scenarios.under("k"))
    written = []
    for guarded in guards(charge):
        Charge.objects.all().delete()
        fails.append(RuntimeError("it fails after its write"))
        for _ in range(2):
            try:
                guarded(order=7)
            except RuntimeError:
                continue
        written.append(Charge.objects.count())
    assert written == [2, 1]
