"""What other code can ask about a function's calls."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from asgiref.sync import async_to_sync

from django_idempotency import idempotent_function
from django_idempotency.errors import (
    InProgress,
    KeyMalformed,
    KeyMissing,
    ResponseNotStored,
    UnhashablePayload,
)
from django_idempotency.functions import derive_key

from .helpers import CardDeclined, Clock, NetworkDown, of

pytestmark = pytest.mark.usefixtures("memory")


def make(work: Any = lambda order: {"order": order}, **given: Any) -> Any:
    return idempotent_function(key_prefix="charge", key="order", **given)(of(work))


def test_key_for() -> None:
    """The key is that of a call with these arguments, which must contain what identifies it."""
    charge = make()
    assert charge.idempotency.key_for(1) == charge.idempotency.key_for(order=1)
    assert len(charge.idempotency.key_for(1)) == 64
    assert len(make(hash_function="sha512").idempotency.key_for(1)) == 128
    with pytest.raises(KeyMissing):
        charge.idempotency.key_for(None)


@pytest.mark.parametrize(
    "terms",
    [
        {"data_keyword_argument": "event", "key": "id"},
        {"key": "event.id"},
        {"key": "[event.id, event.id]"},
    ],
    ids=["the one argument", "one of all", "parts"],
)
def test_what_does_not_belong_to_the_key_is_not_asked_for(terms: dict[str, Any]) -> None:
    """A handler's record is found without its context; what the key is made of, and names that it
    has not, are asked for.
    """

    @idempotent_function(key_prefix="handler", **terms)
    def handler(event: dict[str, Any], context: object, *, dry_run: bool) -> int:
        return 5

    event: Any = {"id": 17}
    handle: Any = handler.idempotency
    handler(event, object(), dry_run=False)
    assert handle.lookup(event=event).result() == handle.lookup(event).result() == 5
    assert handle.key_for(event) == handle.key_for(event, None, dry_run=True)
    assert handle.forget(event=event) is True
    for wrong in ({}, {"context": None}, {"event": event, "other": 1}):
        with pytest.raises(TypeError, match="argument"):
            handle.key_for(**wrong)


@pytest.mark.parametrize(
    "key", [None, "@", "[event.id, values(@)]", lambda arguments: arguments["event"]["id"]]
)
def test_a_key_of_all_arguments_asks_for_all(key: Any) -> None:
    """Without one of them it would be another key."""

    @idempotent_function(key_prefix="handler", key=key)
    def handler(event: dict[str, Any], context: object) -> int:
        return 5

    with pytest.raises(TypeError, match="context"):
        handler.idempotency.key_for(event={"id": 17})


def test_lookup(clock: Clock) -> None:
    """A lookup returns nothing, then state, attempt and result, then nothing again after the
    expiry.
    """
    charge = make(expires_after=60, lease=10)
    assert charge.idempotency.lookup(1) is None
    charge(1)
    known = charge.idempotency.lookup(1)
    assert (known.state, known.attempt, known.result()) == ("completed", 1, {"order": 1})
    clock.go(60)
    assert charge.idempotency.lookup(1) is None


def test_lookup_while_it_runs(clock: Clock) -> None:
    """The state is running until the lease ends, and unknown afterwards."""
    states: list[str] = []

    def work(order: int) -> None:
        known = charge.idempotency.lookup(1)
        states.append(known.state)
        with pytest.raises(InProgress):
            known.result()
        with pytest.raises(InProgress):
            charge.idempotency.forget(1)
        clock.go(10)
        states.append(charge.idempotency.lookup(1).state)

    charge = make(work, lease=10)
    charge(1)
    assert states == ["running", "abandoned"]


def test_lookup_of_what_failed() -> None:
    """A kept exception is raised, as by a call; one that frees the key leaves no result."""

    def work(order: int) -> None:
        raise CardDeclined("no", 1) if order == 1 else NetworkDown

    charge = make(work, keep_exceptions=CardDeclined)
    for order, error in ((1, CardDeclined), (2, NetworkDown)):
        with pytest.raises(error):
            charge(order)
    with pytest.raises(CardDeclined):
        charge.idempotency.lookup(1).result()
    assert charge.idempotency.lookup(2).state == "failed"


def test_lookup_of_what_was_not_stored() -> None:
    """A lookup raises the same typed error as a retry."""
    charge = make(lambda order: object())
    charge(1)
    with pytest.raises(ResponseNotStored):
        charge.idempotency.lookup(1).result()


def test_forget() -> None:
    """A forgotten call counts as never made: another amount is accepted, as attempt 1."""

    @idempotent_function(key="order", validate="amount", key_prefix="charge")
    def charge(order: int, amount: int) -> int:
        return amount

    assert charge(1, 5) == 5
    assert charge.idempotency.forget(1, 5) is True
    assert charge.idempotency.forget(1, 5) is False
    assert charge(1, 6) == 6
    known = charge.idempotency.lookup(1, 6)
    assert known is not None
    assert known.attempt == 1


def test_explicit_keys() -> None:
    """Calls can be addressed by key instead of by arguments; a key is printable text."""
    charge = make()
    assert charge.with_key("k")(1) == {"order": 1}
    assert charge.idempotency.lookup_key("k").result() == {"order": 1}
    assert charge.idempotency.forget_key("k") is True
    for wrong in ("", "k" * 256, "a\n", "ü", 5):
        with pytest.raises(KeyMalformed):
            charge.with_key(wrong)


def test_answers() -> None:
    """The caller can ask whether a result is an earlier call's."""
    charge = make()
    assert [charge.idempotency.answer(1).replayed for _ in range(2)] == [False, True]


def test_async_handles() -> None:
    """The same holds for coroutine functions; a lookup does not block the loop."""

    @idempotent_function(key="order", key_prefix="charge")
    async def charge(order: int) -> int:
        return order

    async def main() -> None:
        handle = charge.idempotency
        assert await handle.alookup(1) is None
        assert [(await handle.aanswer(1)).replayed for _ in range(2)] == [False, True]
        known = await handle.alookup(1)
        assert known is not None
        assert known.result() == 1
        assert await handle.aforget(1) is True
        assert await handle.alookup(1) is None

    async_to_sync(main)()


def test_derive_key() -> None:
    """A key of values depends on their types and meanings, and never changes."""
    assert derive_key("merchant", 17, 1) == derive_key("merchant", 17, 1)
    assert (
        len({derive_key("m", 1), derive_key("m", "1"), derive_key("m1"), derive_key("m", 1, 0)})
        == 4
    )
    with pytest.raises(UnhashablePayload):
        derive_key(object())


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((), "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945"),
        (("merchant", 17), "9c861c3f41434ade39569d0f64d53d5567d61e89fd7fde9ec353e3f915643ac2"),
        (
            ("m", 17, Decimal("12.50"), UUID(int=1), date(2026, 1, 2), None, ["a", {"b": True}]),
            "3f576a586fbe9b8197a269d236b2302e83a7e5ceac6d771866f9c25d058fc193",
        ),
    ],
    ids=["nothing", "two", "of many types"],
)
def test_derived_keys_stay_as_they_are(parts: tuple[Any, ...], expected: str) -> None:
    """Derived keys are the same in every release: a queue may hold messages with keys from an
    earlier one.
    """
    assert derive_key(*parts) == expected


def test_what_a_call_is_stored_under_stays_as_it_is() -> None:
    """A release that changed one of these would run a known call again, or refuse it as another
    one.
    """
    charge = make(validate="order")
    charge(17)
    assert charge.idempotency.scope == "call:charge"
    record = charge.idempotency.lookup(17).record
    assert (record.scope, record.key) == (
        "call:charge",
        "96f347b3c3f96842e2ce85fcb99c6bf9b97d4496ced18885fef9aa745987251e",
    )
    assert str(record.id) == "8afb1c34-9074-5b37-9cce-c74328550609"
    assert record.digest.hex() == "c9caa69ab076160844a99a988b6ace218adfb8776bba27775300dd7e913dc4f8"
    unbound = make()
    unbound(18)
    assert (
        unbound.idempotency.lookup(18).record.digest.hex()
        == "8dad300727bce3e05399577a2a3062b7cf3343c04f02c5caaca53fd88112dc24"
    )


def test_a_name_that_no_scope_can_hold() -> None:
    """A name that fits no scope is hashed, in the same way in every release."""
    assert idempotent_function(key_prefix="n" * 251)(of(print)).idempotency.scope == (
        "call#sha256:8fce702e81ba43242cd3556d630696fa26e85b3de7a9f42da975b954b932ffc6"
    )
