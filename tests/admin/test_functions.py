"""Records of functions, listed among those of requests."""

from __future__ import annotations

import pytest
from django.utils.html import escape

from django_idempotency import idempotent_function
from django_idempotency.core.conclusions import Ending, WorkResult
from django_idempotency.core.hashing import record_id
from django_idempotency.core.records import CANCELLATIONS, Outcome, OutcomeKind
from django_idempotency.functions import Handle
from tests.stores.helpers import Call, atomic_ticket

from .helpers import LIST, page_of, staff

pytestmark = pytest.mark.django_db


class Declined(Exception):
    pass


@idempotent_function(key_prefix="shop.charge", key="order", keep_exceptions=Declined)
def charge(order: str) -> dict[str, str]:
    if order == "declined":
        raise Declined(order)
    return {"order": order, "token": "sk_live_secret"}


def held() -> Call:
    """Store the result that on_takeover has held."""
    key = charge.idempotency.key_for("held")
    scope = charge.idempotency.scope
    call = Call(
        atomic_ticket(
            id=record_id(scope, key), scope=scope, key=key, method="CALL", path="shop.charge"
        )
    )
    call.open()
    call.operation.settle(Ending(WorkResult.KEPT, OutcomeKind.HELD.outcome(), succeeded=True))
    return call


def test_the_list_shows_how_they_ended() -> None:
    """A call's outcome is one word, where a request has a status."""
    charge("o-1")
    with pytest.raises(Declined):
        charge("declined")
    held()
    Call().run()
    viewer = staff()
    page = viewer.get(f"{LIST}").content.decode()
    for kind in ("result", "error", "held"):
        assert f">{kind}</span></td>" in page
    assert "Records 1 to 4" in page
    assert page.count('<span class="idempotency-label held"') == 1


@pytest.mark.parametrize("mark", CANCELLATIONS)
def test_the_list_shows_what_was_cancelled(mark: Outcome) -> None:
    """An operation that has given up is not shown as one that is done."""
    call = Call(atomic_ticket(key="order-17"))
    call.open()
    call.operation.settle(Ending(WorkResult.KEPT, mark, succeeded=True))
    for viewed in (LIST, page_of(call.ticket)):
        page = staff().get(viewed).content.decode()
        assert '<span class="idempotency-label cancelled"' in page
        assert '<span class="idempotency-label completed"' not in page


def test_the_page_shows_a_result() -> None:
    """A result is shown as JSON, with its secrets masked."""
    charge("o-1")
    handle: Handle = charge.idempotency
    ticket = atomic_ticket(id=record_id(handle.scope, handle.key_for("o-1")))
    page = staff("view_response").get(page_of(ticket)).content.decode()
    assert escape('"order": "o-1"') in page
    assert "sk_live_secret" not in page


def test_the_page_of_a_held_call() -> None:
    """The page of a held call says what an operator should do."""
    page = staff().get(page_of(held().ticket)).content.decode()
    assert "raises HeldForPerson" in page
