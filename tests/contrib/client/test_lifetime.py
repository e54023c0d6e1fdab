"""The key of a call has one life, and who gives up a step first closes the door through which its
calls are sent.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from django_idempotency import idempotent_function
from django_idempotency.contrib.client.exchange import Errors, Exchange, Terms
from django_idempotency.contrib.client.ledger import Ledger
from django_idempotency.contrib.client.messages import Answer, OutgoingRequest
from django_idempotency.contrib.client.models import OutgoingCall
from django_idempotency.contrib.client.names import CallName
from django_idempotency.contrib.steps.models import Step
from django_idempotency.errors import CallHeld, OperationCancelled, OutcomeUnknown
from django_idempotency.functions import current_operation
from django_idempotency.runtime.current_step import CURRENT_STEP
from django_idempotency.testing.clock import end_leases

from ...support.passing import host_off_by, let_pass
from ..steps.test_lifetime import LIFETIME, Forgetful
from ..steps.test_undoing import states
from ..steps.work import Crash

pytestmark = [pytest.mark.either_server, pytest.mark.django_db(transaction=True)]

WORLD = Forgetful()
#: What happens in place of a send, once each.
PLAN: list[Callable[[str, str], Answer]] = []


@pytest.fixture(autouse=True)
def _world(settings: Settings) -> None:
    WORLD.__init__()  # type: ignore[misc]
    PLAN.clear()
    options = {"LIFETIME": LIFETIME, "CLIENT": f"{__name__}.Client"}
    settings.IDEMPOTENCY = {"GUARANTEE": "lease", "PROVIDERS": {"fake": options}}


def answer(status: int = 200, **headers: str) -> Answer:
    return Answer(status=status, headers=tuple(headers.items()), body=b"{}")


def call(what: str, name: str | None = None, key: str | None = None, retries: int = 0) -> int:
    """Make one call, of the step that runs or under a name."""

    def send(key: str, left: float) -> Answer:
        if PLAN:
            return PLAN.pop(0)(what, key)
        WORLD.do(what, key)
        return answer()

    step = CURRENT_STEP.get()
    if name is None:
        assert step is not None
        name, key = f"{step.operation}/{step.name}", step.key
    request = OutgoingRequest(
        method="POST", url=f"https://provider.example/{what}", headers=(), body=b""
    )
    terms = Terms(provider="fake", retries=retries, base=0.0, longest=0.0)
    errors = Errors(not_sent=lambda error: isinstance(error, ConnectionError), broken=(OSError,))
    return (
        Exchange(terms, errors, CallName(name=name, key=key, step=step), request).run(send).status
    )


class Client:
    """What a command sends with."""

    def build_request(self) -> None: ...

    def request(self, method: str, url: str, **_: Any) -> None:
        raise AssertionError("nothing is sent")

    def close(self) -> None: ...


def charge(*, idempotency_key: str) -> int:
    return call("charge", retries=3)


def refund(status: Any, *, idempotency_key: str) -> None:
    call("refund")


def ask(asked: Any) -> Any:
    return asked.found(200) if asked.key in WORLD.first else asked.run()


@idempotent_function(key="card", key_prefix="given-up")
def pay(card: str) -> Any:
    run = current_operation()
    assert run is not None
    return run.step("charge", charge, undo=refund, ask=ask)


def give_up() -> str:
    """Let a person give it up, after its owner's lease."""
    end_leases()
    out = StringIO()
    try:
        call_command(
            "idempotency_resume",
            "operations",
            "--undo",
            str(Step.objects.order_by("pk")[0].record),
            stdout=out,
        )
    except CommandError as error:
        return str(error)
    return out.getvalue()


def charges() -> tuple[int, int]:
    return WORLD.count("charge"), WORLD.count("refund")


def died_before_the_first_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Ledger.start

    def start(ledger: Ledger) -> Any:
        real(ledger)
        raise Crash

    with monkeypatch.context() as dying:
        dying.setattr(Ledger, "start", start)
        with pytest.raises(Crash):
            pay("visa")


def test_a_worker_that_died_before_the_first_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its call is closed before anybody asks; later no command, and no late owner, sends it."""
    died_before_the_first_byte(monkeypatch)
    let_pass(timedelta(minutes=10))
    assert give_up() == "Undone.\n"
    assert states() == ["SKIPPED", "BARRIER"]
    assert OutgoingCall.objects.get().state == "given_up"
    let_pass(timedelta(minutes=10))
    out = StringIO()
    call_command("idempotency_resume", "calls", "--send", "--unanswered", stdout=out)
    assert out.getvalue() == "Nothing to resume.\n"
    with pytest.raises(OperationCancelled):
        pay("visa")
    assert charges() == (0, 0)


@pytest.mark.parametrize("state", ["open", "unknown"])
def test_a_call_that_may_be_on_its_way(monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    """A moment after the attempt, or its timeout, nobody can tell: the undo waits; then it is
    closed and asked about.
    """
    died_before_the_first_byte(monkeypatch)
    OutgoingCall.objects.update(state=state)
    assert "NotUndone" in give_up()
    assert states() == ["STARTED", "BARRIER"]
    let_pass(timedelta(minutes=10))
    call_command("idempotency_resume", "operations", verbosity=0)
    assert (states(), OutgoingCall.objects.get().state) == (["SKIPPED", "BARRIER"], "given_up")


def test_an_operation_is_given_up_in_a_pause() -> None:
    """The next attempt of a living transport is not sent."""

    def unavailable(what: str, key: str) -> Answer:
        PLAN.append(lambda what, key: pytest.fail("it was sent"))
        let_pass(timedelta(minutes=10))
        give_up()
        return answer(503)

    PLAN.append(unavailable)
    with pytest.raises(OperationCancelled):
        pay("visa")
    assert OutgoingCall.objects.get().state == "given_up"
    assert charges() == (0, 0)


@pytest.mark.parametrize("minutes", [0, 10])
def test_an_operation_is_given_up_during_a_call(minutes: int) -> None:
    """A call on its way ends as its provider says, and is undone if that carried it out."""

    def slow(what: str, key: str) -> Answer:
        let_pass(timedelta(minutes=minutes))
        WORLD.do(what, key)
        give_up()
        return answer()

    PLAN.append(slow)
    with suppress(OperationCancelled, OutcomeUnknown):  # or the late owner notes it first
        pay("visa")
    let_pass(timedelta(minutes=10))
    call_command("idempotency_resume", "operations", verbosity=0)
    assert charges() == (1, 1)
    assert OutgoingCall.objects.get(operation__endswith="-undo").state == "succeeded"
    assert OutgoingCall.objects.exclude(operation__endswith="-undo").get().state == "succeeded"


def test_given_up_between_the_row_and_the_first_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    """Either the one who gives up finds the attempt, or the attempt finds that: it is not sent."""
    real = Ledger._refuse_given_up

    def meanwhile(ledger: Ledger, started: Any) -> None:
        give_up()
        real(ledger, started)

    monkeypatch.setattr(Ledger, "_refuse_given_up", meanwhile)
    with pytest.raises(OperationCancelled):
        pay("visa")
    let_pass(timedelta(minutes=10))
    call_command("idempotency_resume", "operations", verbosity=0)
    assert (charges(), states()) == ((0, 0), ["SKIPPED", "BARRIER"])


def test_a_step_sends_its_calls_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command lists the call of a dead step and leaves it; the step's next attempt sends it,
    with its key.
    """
    died_before_the_first_byte(monkeypatch)
    let_pass(timedelta(minutes=10))
    out = StringIO()
    call_command("idempotency_resume", "calls", stdout=out)
    assert "open  its step sends it" in out.getvalue()
    call_command("idempotency_resume", "calls", "--send", verbosity=0)
    assert charges() == (0, 0)
    end_leases()
    assert pay("visa") == 200
    assert (charges(), OutgoingCall.objects.get().key) == ((1, 0), next(iter(WORLD.first)))


# ------------------------------------------------------------------------------------------ its key


def limited(what: str, key: str) -> Answer:
    return answer(429)


def unheard(what: str, key: str) -> Answer:
    """It is done, and the response does not say so."""
    WORLD.do(what, key)
    return answer(503)


def refused(what: str, key: str) -> Answer:
    raise ConnectionError


@pytest.mark.parametrize("fails", [limited, refused])
@pytest.mark.parametrize("key", ["k" * 64, None])
def test_a_key_stays(fails: Any, key: str | None) -> None:
    """After 429, or without a connection, the next attempt has the key of the first: somebody may
    look for that.
    """
    PLAN.extend([fails, unheard, limited])
    seen = set()
    for _ in range(4):
        with suppress(ConnectionError):
            call("charge", "order-17", key, retries=1)
        seen.add(OutgoingCall.objects.get().key)
    assert len(seen) == 1
    assert seen == set(WORLD.first)
    assert seen == {key} or key is None
    assert charges() == (1, 0)


def test_a_person_says_that_it_was_not_carried_out() -> None:
    """A key that the ledger has made is replaced then, and a caller's is not."""
    for name, key in (("ours", None), ("theirs", "k" * 64)):
        PLAN.append(lambda what, key: answer(503))
        call("charge", name, key)
        before = OutgoingCall.objects.get(name=name)
        OutgoingCall.objects.filter(name=name).update(state="void")
        call("charge", name, key)
        assert (OutgoingCall.objects.get(name=name).key == before.key) is (key is not None)


def test_sixty_days_of_calls() -> None:
    """However often it is tried: one effect under one key, then it is held, by the clock of the
    database.
    """
    chance, ended = random.Random(2), []
    while WORLD.now < timedelta(days=60):
        PLAN.append(unheard)
        try:
            with host_off_by(chance.choice([-2, 2])):
                ended.append(call("charge", "order-17"))
        except CallHeld:
            ended.append(0)
        WORLD.go(timedelta(hours=chance.uniform(1, 20)))
    assert charges() == (1, 0)
    assert ended[:2] == [503, 503]
    assert set(ended[ended.index(0) :]) == {0}


def test_redirected() -> None:
    """It has ended and needs no person; what is sent again has its key."""
    PLAN.extend([lambda what, key: answer(303, location="/charges/1")] * 2)
    assert (call("charge", "order-17"), call("charge", "order-17")) == (303, 303)
    assert OutgoingCall.objects.get().state == "refused"
