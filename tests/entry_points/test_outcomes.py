"""The outcome table of design §3.3, row by row, through each entry point: what is remembered and
what is committed.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User

from django_idempotency.core.failures import failure_of
from django_idempotency.core.records import Status
from django_idempotency.models import IdempotencyRecord
from django_idempotency.stores.orm import ORMStore

from .conftest import Connect, effects

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("tests.entry_points.outcome_views"),
]

KEPT, FREE, BOUND = "kept", "free", "bound"

#: How the view ends → status, what becomes of the record, how many of its writes are committed.
PLAIN: dict[str, tuple[int, str, int]] = {
    "201": (201, KEPT, 1),
    # Raised: Django turns it into a status below 500, and a bare view keeps what it wrote.
    "404": (
        404,
        KEPT,
        1,
    ),
    "422": (422, KEPT, 1),
    "402": (402, KEPT, 1),
    "400": (400, FREE, 1),
    "401": (401, FREE, 1),
    "403": (403, FREE, 1),  # a counted PIN stays counted
    "409": (409, FREE, 1),
    "429": (429, FREE, 1),
    "500": (500, BOUND, 0),
    "503": (503, BOUND, 0),
    "raise": (500, BOUND, 0),
    "denied": (403, FREE, 1),
    "suspicious": (400, FREE, 1),
    "bad": (400, FREE, 1),
    "malformed": (400, FREE, 1),
    "integrity": (500, BOUND, 0),  # an error has rolled it back: a success is what is committed
    "kept-502": (502, KEPT, 0),
    "dropped-201": (201, FREE, 1),
}

#: DRF handles its exceptions inside the guard, so they are responses.
DRF: dict[str, tuple[int, str, int]] = {
    **PLAIN,
    "validation": (400, FREE, 1),
    "payment": (402, KEPT, 1),
}

CASES = [
    *(
        (entry_point, how, expected)
        for entry_point in ("decorated", "middleware")
        for how, expected in PLAIN.items()
    ),
    *(
        (entry_point, how, expected)
        for entry_point in ("mixed", "above", "below")
        for how, expected in DRF.items()
    ),
]
#: On each server: a rollback, a response that is withheld for one, and a commit without a response.
ON_EACH = (("mixed", "500"), ("mixed", "integrity"), ("mixed", "dropped-201"))


@pytest.fixture
def send(user: User, connect: Connect) -> Any:
    def send(entry_point: str, how: str, headers: Any = None, **more: Any) -> Any:
        return connect(f"/{entry_point}/", user)({"how": how, **more}, headers=headers or {})

    return send


@pytest.mark.parametrize(
    ("entry_point", "how", "expected"),
    [
        pytest.param(*case, marks=() if case[:2] in ON_EACH else pytest.mark.either_server)
        for case in CASES
    ],
)
def test_the_table(send: Any, entry_point: str, how: str, expected: tuple[int, str, int]) -> None:
    """Two independent questions: is the response remembered, and are its writes committed?"""
    status, left, written = expected
    assert send(entry_point, how).status_code == status
    assert effects() == written
    record = IdempotencyRecord.objects.get()
    assert record.status == (Status.COMPLETED if left == KEPT else Status.FREE)
    assert bool(record.digest) == (left != FREE)

    changed = send(entry_point, how, another="body")
    if left == FREE:
        assert changed.status_code == status  # runs again, with another body
        assert IdempotencyRecord.objects.get().attempt == 2
    else:
        assert changed.status_code == 422
    again = send(entry_point, how)
    assert ("Idempotent-Replayed" in again) == (left == KEPT)
    if left == KEPT:
        assert again.status_code == status
        assert effects() == written


@pytest.mark.any_database
@pytest.mark.parametrize(("how", "said"), [("500", "failed"), ("402", "created"), ("raise", None)])
@pytest.mark.parametrize("entry_point", ["decorated", "mixed", "above"])
def test_what_carries_the_status(
    entry_point: str, how: str, said: str | None, send: Any, settings: Any
) -> None:
    """A response that a view makes says what became of its key.

    Django's 500 of an exception says it with our middleware.
    """
    assert send(entry_point, how).get("Idempotency-Status") == (said or "failed")
    settings.MIDDLEWARE = [
        name for name in settings.MIDDLEWARE if not name.startswith("django_idempotency.")
    ]
    IdempotencyRecord.objects.all().delete()
    assert send(entry_point, how).get("Idempotency-Status") == said


#: How the view ends → the error that its record notes, and the status of the response.
FAILURES = {"raise": ("LookupError", 500), "500": ("", 500), "503": ("", 503)}


@pytest.mark.parametrize(
    "entry_point", ["decorated", "middleware", "mixed", "above", "below", "leased"]
)
@pytest.mark.parametrize("how", FAILURES)
def test_a_failure_is_noted(send: Any, entry_point: str, how: str) -> None:
    """The record of a failed request names the error's class, never its message, with the id of the
    request that failed.
    """
    send(entry_point, how, headers={"X-Request-ID": "req-1"})
    row = IdempotencyRecord.objects.get()
    record = ORMStore().get(row.pk)
    assert record is not None
    failure = failure_of(record)
    assert failure is not None
    assert (failure.error, failure.status, record.request_id) == (*FAILURES[how], "req-1")
    assert (record.completed_at, row.response_body) == (None, None)


def test_an_exception_that_leaves_a_broken_transaction(send: Any) -> None:
    """No handler can query a database in there: the response is not remembered, and nothing is
    written.
    """
    assert send("decorated", "404-in-a-broken-transaction").status_code == 404
    assert (effects(), IdempotencyRecord.objects.get().status) == (0, Status.FREE)


@pytest.mark.parametrize("entry_point", ["decorated", "middleware", "mixed", "above", "below"])
def test_an_on_commit_callback_that_fails(send: Any, entry_point: str) -> None:
    """It fails after COMMIT: the client sees a 500, as from Django, and the retry gets the
    response.
    """
    assert send(entry_point, "hook").status_code == 500
    retry = send(entry_point, "hook")
    assert (retry.status_code, retry["Idempotent-Replayed"]) == (201, "true")
    assert effects() == 1


@pytest.mark.parametrize("entry_point", ["decorated", "middleware", "mixed", "above", "below"])
def test_a_durable_block_gets_a_hint(user: User, connect: Connect, entry_point: str) -> None:
    """atomic(durable=True) cannot be inside a guard; the error says what to type."""
    sender = connect(f"/{entry_point}/", user)
    sender.client.raise_request_exception = True
    with pytest.raises(Exception, match='guarantee="lease"'):
        sender({"how": "durable"})
    assert effects() == 0


#: In `lease` the view's writes are kept; what is remembered is the same.
LEASED = {
    "201": (201, KEPT),
    "400": (400, FREE),
    "500": (500, BOUND),
    "raise": (500, BOUND),
    "durable": (201, KEPT),
}
LEASED |= {"404": (404, KEPT), "denied": (403, FREE), "suspicious": (400, FREE)}


@pytest.mark.parametrize(("how", "expected"), LEASED.items())
def test_lease_keeps_the_writes(send: Any, how: str, expected: tuple[int, str]) -> None:
    """Nothing is rolled back for a leased view."""
    status, left = expected
    assert send("leased", how).status_code == status
    assert effects() == 1
    assert IdempotencyRecord.objects.get().status == (
        Status.COMPLETED if left == KEPT else Status.FREE
    )


@pytest.mark.parametrize("entry_point", ["decorated", "middleware", "mixed", "above"])
def test_a_failure_runs_again_as_the_next_attempt(send: Any, entry_point: str) -> None:
    """After a 500 the same request runs again, as the next attempt."""
    send(entry_point, "500")
    send(entry_point, "500")
    assert IdempotencyRecord.objects.get().attempt == 2


def test_every_entry_point_is_here() -> None:
    """Without this test, an entry point missing from the table would go unnoticed."""
    from .outcome_views import VIEWS

    atomic = {name for name in VIEWS if not name.startswith("leased")}
    assert {entry_point for entry_point, _, _ in CASES} == atomic
