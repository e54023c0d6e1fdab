"""`derive()` follows the operation: the same key at every attempt and takeover, another key for
another operation.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.conf import settings as configured
from django.db import transaction
from django.db.models import F

from django_idempotency.core.conclusions import Ending, WorkResult
from django_idempotency.core.hashing import secret_id
from django_idempotency.core.interventions import CHANGES
from django_idempotency.core.records import Guarantee, Status, Ticket
from django_idempotency.core.rules import Execute
from django_idempotency.engine.lease import LeaseOperation
from django_idempotency.errors import OperationUnknown, SecretUnknown
from django_idempotency.models import IdempotencyRecord
from django_idempotency.runtime.derivation import derive, derived_by
from django_idempotency.stores.orm import ORMStore
from django_idempotency.testing.tickets import NOW, make_ticket

from ..stores.helpers import OUTCOME, committed
from ..support.fakes import Listener, operation_of

pytestmark = committed

#: What was derived on 28 November 2026: of a first request, of another one after it was refused,
#: and of that again after its retention.
FIRST = "31f8dbc5d66b6bf7ebbc7dc56f705a0975cf5332833e4cffd309a7b028437fd6"
CORRECTED = "9ebb912608daa9eb6c88116ce017e323512ed88a716723a201147c5d785bc14d"
NEXT_LIFE = "98a0e1127fbdb109079bfe10d3f1700a6a6b0ef44f32e0e709111719b664f19c"

#: How an attempt may end so that another follows; `None`: its process dies.
FOLLOWED = (WorkResult.FAILED, WorkResult.DROPPED, None)


@pytest.fixture(params=Guarantee)
def guarantee(request: pytest.FixtureRequest) -> Guarantee:
    return Guarantee(request.param)


def run(
    guarantee: Guarantee, ended: WorkResult | None, body: bytes = b"one", *, now: datetime = NOW
) -> tuple[Execute, str]:
    """Run the key once more. Return the verdict, and the key that it derived."""
    named = secret_id(configured.SECRET_KEY)
    ticket: Ticket = make_ticket(body=body, guarantee=guarantee, lease=0, secret_id=named, now=now)
    call = operation_of(ORMStore(), ticket, Listener())
    verdict = call.open()
    if isinstance(call, LeaseOperation):
        call.leave_lease()
    assert isinstance(verdict, Execute)
    try:
        derived = derive(call, "charge")
        if ended is not None:
            call.settle(Ending(ended, OUTCOME, succeeded=ended is not WorkResult.FAILED))
    finally:
        # of the work of a dead process nothing is left: its transaction is rolled back
        call.close()
        # Its attempt was written before the work: the key is busy until its lease ends.
        IdempotencyRecord.objects.filter(status=Status.RUNNING).update(lease_until=F("created_at"))
    return verdict, derived


def pass_by(**time: float) -> None:
    """Let time pass for the records."""
    passed = timedelta(**time)
    IdempotencyRecord.objects.update(
        expires_at=F("expires_at") - passed, purge_at=F("purge_at") - passed
    )


def test_every_attempt(guarantee: Guarantee) -> None:
    """Failed, refused, crashed and taken over: one operation, one key."""
    ends = (*FOLLOWED, *FOLLOWED[::-1])
    runs = [run(guarantee, ended) for ended in ends]
    assert len({derived for _, derived in runs}) == 1
    # A crashed one is recorded, too.
    assert [verdict.attempt for verdict, _ in runs] == [
        1,
        2,
        3,
        4,
        5,
        6,
    ]


@pytest.mark.parametrize("ended", [WorkResult.KEPT, WorkResult.FAILED, None])
def test_for_an_operator(guarantee: Guarantee, ended: WorkResult | None) -> None:
    """A record gives the key that its operation has derived, however its last attempt ended."""
    keys = {run(guarantee, WorkResult.FAILED)[1], run(guarantee, ended)[1]}
    record = ORMStore().get(make_ticket().id)
    assert record is not None
    assert {derived_by(record, "charge")} == keys


def test_a_corrected_request(guarantee: Guarantee) -> None:
    """After a refusal another body derives another key, at each of its attempts; the first body its
    own again.
    """
    _, refused = run(guarantee, WorkResult.DROPPED, b"amount: -1")
    corrected = [
        run(guarantee, ended, b"amount: 1")[1]
        for ended in (None, WorkResult.FAILED, WorkResult.DROPPED)
    ]
    assert len(set(corrected)) == 1
    assert refused not in corrected
    assert run(guarantee, WorkResult.KEPT, b"amount: -1")[1] == refused


@pytest.mark.parametrize("ended", [*FOLLOWED, WorkResult.KEPT])
def test_a_new_life(guarantee: Guarantee, ended: WorkResult | None) -> None:
    """After the retention the key is another operation, and after the next retention yet
    another.
    """
    derived = set()
    for each in (ended, WorkResult.KEPT, WorkResult.FAILED):
        verdict, key = run(guarantee, each)
        assert verdict.attempt == 1
        derived.add(key)
        pass_by(days=2)
    assert len(derived) == 3


def test_a_new_life_whose_first_owner_dies(guarantee: Guarantee) -> None:
    """It is one operation from its start: the new life is written before its first work runs."""
    _, before = run(guarantee, WorkResult.KEPT)
    pass_by(days=2)
    runs = [
        run(guarantee, ended) for ended in (None, None, WorkResult.FAILED, None, WorkResult.KEPT)
    ]
    assert len({derived for _, derived in runs}) == 1
    assert runs[0][1] != before
    assert [verdict.attempt for verdict, _ in runs] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(("verb", "same"), [("release", True), ("expire", False), ("erase", False)])
def test_by_an_operator(guarantee: Guarantee, verb: str, same: bool) -> None:
    """*Release* lets the operation run again; *Expire* and *Erase* end it, even if a purge comes in
    between.
    """
    _, before = run(guarantee, WorkResult.KEPT)
    ORMStore().change(make_ticket().id, CHANGES[verb], audit=lambda _: None)
    assert ORMStore().purge(limit=10).count == 0
    assert (run(guarantee, WorkResult.KEPT)[1] == before) is same


def test_a_purge(guarantee: Guarantee) -> None:
    """After the retention the key is another operation, even if its record is gone."""
    _, before = run(guarantee, WorkResult.FAILED)
    pass_by(days=2)
    assert ORMStore().purge(limit=10).count == 1
    assert run(guarantee, WorkResult.KEPT, now=NOW + timedelta(days=2))[1] != before


def test_a_lost_record(guarantee: Guarantee) -> None:
    """A store that has lost a claim, as in a crash, derives the same key: the provider knows it."""
    _, before = run(guarantee, None)
    IdempotencyRecord.objects.all().delete()
    assert run(guarantee, WorkResult.KEPT, now=NOW + timedelta(seconds=1))[1] == before


def test_an_attempt_that_left_no_trace() -> None:
    """Rolled back with the transaction of its caller, such as that of ATOMIC_REQUESTS, it was none:
    the retry is attempt 1 again, and derives the same key.
    """
    runs = []
    for ended in (WorkResult.FAILED, None, WorkResult.KEPT):
        with transaction.atomic():
            runs.append(run(Guarantee.ATOMIC, ended))
            transaction.set_rollback(ended is not WorkResult.KEPT)
    assert [verdict.attempt for verdict, _ in runs] == [1, 1, 1]
    assert len({derived for _, derived in runs}) == 1


def test_the_bytes(guarantee: Guarantee, settings: Any) -> None:
    """Keys that providers have seen are derived for as long as their records live, by each later
    release.
    """
    settings.SECRET_KEY = "a secret that never changes"
    assert run(guarantee, WorkResult.DROPPED)[1] == FIRST
    assert run(guarantee, WorkResult.KEPT, b"two")[1] == CORRECTED
    pass_by(days=2)
    assert run(guarantee, WorkResult.KEPT, b"two")[1] == NEXT_LIFE


def test_a_rotated_secret(guarantee: Guarantee, settings: Any) -> None:
    """The secret of attempt 1 stays valid for any takeover; a new life begins with the new
    secret.
    """
    _, before = run(guarantee, None)
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "rotated"
    assert run(guarantee, WorkResult.FAILED)[1] == before
    settings.SECRET_KEY_FALLBACKS = []
    with pytest.raises(SecretUnknown):
        run(guarantee, WorkResult.FAILED)
    pass_by(days=2)
    assert run(guarantee, WorkResult.KEPT)[1] != before


def test_without_an_operation() -> None:
    """A call that continues without its store derives nothing: once that is back, a retry would
    derive another key.
    """
    with pytest.raises(OperationUnknown):
        derive(LeaseOperation(ORMStore(), make_ticket(), Listener()), "charge")
