"""`LOOKUP`: what became of a call is found out before it is sent again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError

from django_idempotency.contrib.client import outgoing
from django_idempotency.contrib.client.lookup import LostCall
from django_idempotency.contrib.client.models import OutgoingCall
from django_idempotency.errors import (
    CallChanged,
    CallHeld,
    CallResponseNotStored,
    OperationCancelled,
)
from django_idempotency.stores.base import utcnow

from . import callers
from .callers import Reply
from .provider import LOST, Failure, Provider
from .test_resume import AMOUNT, KEYS, died, run

pytestmark = [pytest.mark.any_database, pytest.mark.django_db]
HERE = __name__
DAY = timedelta(hours=24)

#: What the function below does, and what it was given.
DECIDES: list[Callable[[LostCall], Any]] = []
ASKED: list[LostCall] = []


def lookup(call: LostCall) -> Any:
    ASKED.append(call)
    return DECIDES[0](call)


def httpx_client() -> Any:
    return callers.client()


@pytest.fixture(autouse=True)
def looks_up(providers: dict[str, Any]) -> None:
    providers |= {"LOOKUP": f"{HERE}.lookup", "CLIENT": f"{HERE}.httpx_client"}
    ASKED.clear()
    DECIDES[:] = [found]


def found(call: LostCall) -> Any:
    return call.found({"id": "ch_found"})


def unable(call: LostCall) -> Any:
    raise OSError("The search does not respond.")


#: What it says → the call, and how often it is sent, within `LIFETIME`; and past it.
DECISIONS: dict[str, tuple[Callable[[LostCall], Any], tuple[str, int], tuple[str, int]]] = {
    "found": (found, ("succeeded", 0), ("succeeded", 0)),
    "not found": (LostCall.run, ("succeeded", 1), ("held", 0)),
    "a person": (LostCall.hold, ("held", 0), ("held", 0)),
    "raises": (unable, ("succeeded", 1), ("held", 0)),
    "nothing": (lambda call: None, ("succeeded", 1), ("held", 0)),
    "no success": (lambda call: call.found({}, status=402), ("succeeded", 1), ("held", 0)),
    "no JSON": (lambda call: call.found(call), ("succeeded", 1), ("held", 0)),
}


@pytest.mark.parametrize("forgotten", [False, True])
@pytest.mark.parametrize("decision", DECISIONS)
@pytest.mark.parametrize("by", ["caller", "command"])
def test_what_it_decides(provider: Provider, decision: str, forgotten: bool, by: str) -> None:
    """Found is not sent.

    All else is sent with its key while the provider remembers that, and then is a person's.
    """
    call = died(provider)
    if forgotten:
        OutgoingCall.objects.update(first_sent=utcnow() - DAY)
    DECIDES[0], within, past = DECISIONS[decision]
    state, sent = past if forgotten else within
    if by == "command" and state == "succeeded":
        assert run() == "1 call finished."
    elif by == "command":
        with pytest.raises(CommandError, match="0 calls finished, 1 held for a person"):
            run()
    elif state == "held":
        with pytest.raises(CallHeld):
            again(provider)
    else:
        assert again(provider).json()["id"] == ("ch_1" if sent else "ch_found")
    assert provider.keys == [call.key] * sent
    assert (OutgoingCall.objects.get().state, len(ASKED)) == (state, 1)
    assert set(provider.effects.values()) == {1}


def again(provider: Provider, amount: Any = AMOUNT) -> Any:
    with httpx_client() as client, outgoing("order-17"):
        return client.post(f"{provider.url}/pay?token=7", json=amount)


def test_what_it_is_given(provider: Provider) -> None:
    """What one searches with; no query, which may be secret."""
    call = died(provider)
    again(provider)
    (asked,) = ASKED
    url = f"{provider.url}/pay"
    assert asked == LostCall(
        provider="fake",
        name="order-17",
        key=call.key,
        method="POST",
        url=url,
        first_sent=call.first_sent,
    )


def test_a_found_response(call: Callable[..., Reply], provider: Provider) -> None:
    """Every library gets it, now and later, as a response that was stored."""
    provider.plan = [LOST] * 4
    with pytest.raises(callers.BROKEN):
        call("POST", provider.url, "order-17", json=AMOUNT)
    for _ in range(2):
        reply = call("POST", provider.url, "order-17", json=AMOUNT)
        assert (reply.status, reply.body) == (200, {"id": "ch_found"})
        assert reply.headers["content-type"] == "application/json"
        assert reply.facts is not None
        assert (reply.facts.stored, reply.facts.attempts) == (True, 4)
    assert (len(provider.seen), len(ASKED)) == (4, 1)


@pytest.mark.parametrize("result", [b"<ok/>", b""])
def test_a_body_of_bytes(provider: Provider, result: bytes) -> None:
    died(provider)
    DECIDES[0] = lambda call: call.found(result, status=201, content_type="text/xml")
    response = again(provider)
    assert (response.status_code, response.content, response.headers["content-type"]) == (
        201,
        result,
        "text/xml",
    )


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        ("succeeded", pytest.raises(CallResponseNotStored)),
        ("held", pytest.raises(CallHeld)),
        ("given_up", pytest.raises(OperationCancelled)),
        ("refused", nullcontext()),
        ("void", nullcontext()),
    ],
)
def test_what_is_known_is_not_asked_about(provider: Provider, state: str, outcome: Any) -> None:
    died(provider)
    OutgoingCall.objects.update(state=state)
    with outcome:
        again(provider)
    assert ASKED == []


def test_retries_do_not_ask(provider: Provider) -> None:
    """An attempt of its own may be lost: the key settles that at once."""
    provider.plan = [LOST, Failure(status=503)]
    assert again(provider).status_code == 200
    assert (len(provider.seen), ASKED) == (3, [])


def test_another_request_does_not_ask(provider: Provider) -> None:
    died(provider)
    with pytest.raises(CallChanged):
        again(provider, {"amount": 9900})
    assert ASKED == []


def test_a_lookup_that_takes_too_long(provider: Provider) -> None:
    """What was remembered before it is asked may be forgotten after: it is held, and nothing is
    sent.
    """
    died(provider)

    def slow(call: LostCall) -> Any:
        OutgoingCall.objects.update(first_sent=utcnow() - DAY)
        return call.run()

    DECIDES[0] = slow
    with pytest.raises(CallHeld):
        again(provider)
    assert provider.seen == []


@pytest.mark.parametrize("decides", [found, LostCall.hold])
def test_a_call_that_moves_on(provider: Provider, decides: Any) -> None:
    """Another process sends it meanwhile: what was found of the earlier attempt is not written over
    that.
    """
    died(provider)

    def meanwhile(call: LostCall) -> Any:
        OutgoingCall.objects.update(attempts=9, last_sent=utcnow())
        return decides(call)

    DECIDES[0] = meanwhile
    assert run() == "0 calls finished, 1 taken by another process."
    assert (OutgoingCall.objects.get().state, provider.seen) == ("open", [])


@pytest.mark.parametrize("by", [run, None])
def test_what_it_sends_is_another_call(provider: Provider, by: Any) -> None:
    """A search by POST takes neither name nor key of the call that it looks for."""
    call = died(provider)

    def search(call: LostCall) -> Any:
        with callers.client(require_names=False) as client:
            client.post(f"{provider.url}/search", json={"reference": call.name})
        return call.run()

    DECIDES[0] = search
    if by is None:
        again(provider)
    else:
        by()
    assert provider.keys == [None, call.key]


def test_a_large_response(provider: Provider, providers: dict[str, Any]) -> None:
    """It is carried out, and never sent again; the response is not stored."""
    providers["MAX_BODY"] = 5
    died(provider)
    with pytest.raises(CallResponseNotStored):
        again(provider)
    assert (OutgoingCall.objects.get().state, provider.seen) == ("succeeded", [])


def test_sealed(provider: Provider, providers: dict[str, Any], settings: Any) -> None:
    """A found response is sealed like any other."""
    settings.IDEMPOTENCY = {"PROVIDERS": {"fake": providers}, "ENCRYPTION_KEYS": KEYS}
    died(provider)
    assert again(provider).json() == {"id": "ch_found"}
    stored = OutgoingCall.objects.get()
    assert stored.response is not None
    assert b"ch_found" not in bytes(stored.response)
    assert stored.request is None
    assert again(provider).json() == {"id": "ch_found"}


def test_calls_of_steps_and_of_those_that_gave_up(provider: Provider) -> None:
    """Past `LIFETIME` the command asks about these, too, before a person must."""
    for name in ("step", "gave up"):
        died(provider, name)
    OutgoingCall.objects.filter(name="step").update(operation="op/1")
    OutgoingCall.objects.filter(name="gave up").update(state="unknown")
    OutgoingCall.objects.update(first_sent=utcnow() - DAY)
    assert run() == "2 calls finished."
    assert set(OutgoingCall.objects.values_list("state", flat=True)) == {"succeeded"}
