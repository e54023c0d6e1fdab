"""Steps in real requests, through each entry point."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import F
from django.http import Http404
from django.test import AsyncClient, Client

from django_idempotency.contrib.steps.models import Step
from django_idempotency.contrib.steps.rules import StepState
from django_idempotency.core.records import OutcomeKind, Status, kind_of
from django_idempotency.errors import ConfigurationError, StoreUnavailable
from django_idempotency.models import IdempotencyRecord
from django_idempotency.runtime import switch
from django_idempotency.runtime.registry import stores
from testproject.payments.models import Effect

from . import views, work
from .views import BODY, DOORS, END
from .work import PROVIDER, Crash, Declined

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("tests.contrib.steps.views"),
]

Send = Callable[..., Any]
KEY = "8e03978e-40d5-43e8-bc93-6894a57f9324"
ASYNC = [door for door in DOORS if "async" in door or "adrf" in door]


@pytest.fixture(autouse=True)
def _settings(settings: Any) -> None:
    END.clear()
    BODY.clear()
    settings.IDEMPOTENCY = {"GUARANTEE": "lease", "EXTENSIONS": [views.UNDO_ON]}


@pytest.fixture
def send(user: User) -> Send:
    clients = Client(), AsyncClient()
    for client in clients:
        client.force_login(user)

    def send(door: str, body: Any = None, *, key: str = KEY, raises: bool = False) -> Any:
        for client in clients:
            client.raise_request_exception = raises
        post = async_to_sync(clients[1].post) if door in ASYNC else clients[0].post
        return post(
            f"/{door}/", body or {"amount": 1}, "application/json", headers={"Idempotency-Key": key}
        )

    return send


def states() -> list[str]:
    return [
        StepState(state).name
        for state in Step.objects.order_by("position").values_list("state", flat=True)
    ]


def called() -> list[str]:
    return [what for what, _ in PROVIDER.calls]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("failure", [500, TimeoutError()], ids=["returned", "raised"])
def test_a_failure_continues(send: Send, door: str, failure: Any) -> None:
    """A retry continues after the steps that are done, and its response is stored."""
    END.append(failure)
    assert send(door).status_code == 500
    assert states() == ["DONE", "DONE"]
    assert send(door, {"amount": 2}).json()["code"] == "request-mismatch"
    first, retry = send(door), send(door)
    assert (first.status_code, first["Idempotency-Status"]) == (201, "created")
    assert (retry.content, retry["Idempotent-Replayed"]) == (first.content, "true")
    assert first.json()["charge"] in PROVIDER.effects.values()
    assert (called(), work.labels()) == (["charge"], ["order visa"])


@pytest.mark.parametrize("door", DOORS)
def test_an_exception_that_gives_up(send: Send, door: str) -> None:
    """What was done is undone once; the client gets a 500, and each retry that nothing of it
    remains.
    """
    END.append(Declined())
    assert send(door).status_code == 500
    for _ in range(2):
        problem = (retry := send(door)).json()
        assert (retry.status_code, problem["code"], problem["operation_state"]) == (
            409,
            "operation-undone",
            "undone",
        )
    assert send(door, {"amount": 2}).json()["code"] == "request-mismatch"
    assert (called(), len(work.labels())) == (["charge", "refund"], 2)
    assert states() == ["UNDONE", "UNDONE", "BARRIER"]
    assert not Step.objects.exclude(due_at=None).exists()


@pytest.mark.parametrize("door", DOORS)
def test_a_settle_that_is_not_written(
    send: Send, door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No client is told that it is paid while that may be undone."""

    def away(*_: Any) -> bool:
        raise StoreUnavailable

    monkeypatch.setattr("django_idempotency.engine.waiting.SETTLE_PATIENCE", 0.0)
    monkeypatch.setattr("django_idempotency.engine.lease.deferring.add", lambda _: False)
    with monkeypatch.context() as outage:
        outage.setattr(stores["default"], "settle", away)
        response = send(door)
    assert (response.status_code, response.json()["code"]) == (503, "outcome-unknown")
    assert response["Idempotency-Status"] == "unknown"
    assert states() == ["DONE", "DONE"]


async def cut_short(run: Any) -> dict[str, str]:
    async def slow(*, idempotency_key: str) -> None:
        await asyncio.sleep(60)

    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(run.astep("charge", slow, at="most_once"), 0.1)
    return {"charge": "too slow"}


@pytest.mark.parametrize("door", ASYNC)
def test_a_step_that_is_cut(send: Send, door: str) -> None:
    """The view may catch that: its response is not remembered, and its key is busy until the lease
    has ended.
    """
    BODY.append(cut_short)
    assert send(door).status_code == 201
    assert send(door).json()["code"] == "in-progress"
    assert states() == ["STARTED"]


@pytest.mark.parametrize("door", DOORS)
def test_an_undo_that_fails(send: Send, door: str) -> None:
    """The client gets the same, and `idempotency_resume operations` tries again."""
    END.append(Declined())
    PROVIDER.fails["refund"] = TimeoutError()
    assert send(door).status_code == 500
    assert send(door).json()["code"] == "operation-cancelled"
    assert states() == ["UNDONE", "UNDOING", "BARRIER"]
    assert Step.objects.get(state=StepState.BARRIER).due_at is not None


@pytest.mark.parametrize("door", DOORS)
def test_a_refusal_that_gives_up(send: Send, door: str) -> None:
    """An exception that becomes a 4xx gives up as well: its response is stored, and replayed."""
    END.append(Http404("sold out"))
    first = send(door)
    assert first.status_code == 404
    for _ in range(2):
        retry = send(door)
        assert (retry.status_code, retry.content, retry["Idempotent-Replayed"]) == (
            404,
            first.content,
            "true",
        )
    assert (called(), len(work.labels())) == (["charge", "refund"], 2)
    assert states() == ["UNDONE", "UNDONE", "BARRIER"]


@pytest.mark.parametrize("door", DOORS)
def test_most_once_is_held(send: Send, door: str) -> None:
    """A call that may have had its effect is not repeated: a person must decide, and no retry does
    anything.
    """

    def body(run: Any) -> Any:
        return {"charge": run.step("charge", work.charge, 1, at="most_once")}

    async def abody(run: Any) -> Any:
        return {"charge": await run.astep("charge", work.acharge, 1, at="most_once")}

    BODY.append(abody if door in ASYNC else body)
    PROVIDER.fails["charge"] = TimeoutError()
    assert send(door).status_code == 500
    PROVIDER.fails.clear()
    for _ in range(2):
        held = send(door)
        assert (held.status_code, held.json()["code"], held["Idempotency-Status"]) == (
            409,
            "operation-held",
            "held",
        )
    assert (called(), states()) == (["charge"], ["STARTED"])
    record = stores["default"].get(IdempotencyRecord.objects.get().pk)
    assert record is not None
    assert (record.status, kind_of(record.outcome)) == (Status.COMPLETED, OutcomeKind.HELD)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("refusal", [409, PermissionDenied()], ids=["returned", "raised"])
def test_a_refusal_behind_a_step(send: Send, door: str, refusal: Any) -> None:
    """The key is not free for another body, since something was done under it; the same body
    continues.
    """
    END.append(refusal)
    refused = send(door)
    assert refused.status_code == (refusal if isinstance(refusal, int) else 403)
    other = send(door, {"amount": 2})
    assert (other.status_code, other.json()["code"]) == (422, "request-mismatch")
    assert send(door).status_code == 201
    assert called() == ["charge"]


def denied(run: Any) -> Any:
    raise PermissionDenied


async def adenied(run: Any) -> Any:
    raise PermissionDenied


@pytest.mark.parametrize("door", DOORS)
def test_a_refusal_before_any_step(send: Send, door: str) -> None:
    """Nothing was done: the key is free for another body."""
    BODY.append(adenied if door in ASYNC else denied)
    assert send(door).status_code == 403
    BODY.clear()
    assert send(door, {"amount": 2}).status_code == 201


@pytest.mark.parametrize("door", ["decorator", "async"])
def test_a_refusal_of_a_retry_before_any_step(send: Send, door: str) -> None:
    """An earlier attempt has done steps, so the key is not free for another body; the same body
    continues.
    """
    END.append(500)
    assert send(door).status_code == 500
    BODY.append(adenied if door in ASYNC else denied)
    assert send(door).status_code == 403
    BODY.clear()
    other = send(door, {"amount": 2})
    assert (other.status_code, other.json()["code"]) == (422, "request-mismatch")
    assert send(door).status_code == 201
    assert called() == ["charge"]


@pytest.mark.parametrize("door", ["decorator", "async"])
def test_an_exception_that_the_view_catches(send: Send, door: str) -> None:
    """A response to a step whose effect is not known is not remembered: a retry goes on with the
    step, under its key.
    """

    def body(run: Any) -> Any:
        with suppress(TimeoutError):
            return {"charge": run.step("charge", work.charge, 1)}
        return {"charge": "no payment has been taken"}

    async def abody(run: Any) -> Any:
        with suppress(TimeoutError):
            return {"charge": await run.astep("charge", work.acharge, 1)}
        return {"charge": "no payment has been taken"}

    PROVIDER.breaks["charge"] = TimeoutError()
    BODY.append(abody if door in ASYNC else body)
    wrong = send(door)
    assert (wrong.status_code, wrong["Idempotency-Status"]) == (201, "failed")
    assert send(door, {"amount": 2}).json()["code"] == "request-mismatch"
    first, retry = send(door), send(door)
    assert first.json()["charge"] in PROVIDER.effects.values()
    assert (retry.content, retry["Idempotent-Replayed"]) == (first.content, "true")
    assert (PROVIDER.count("charge"), called()) == (1, ["charge", "charge"])


def test_an_exception_of_a_step_that_writes_here(send: Send) -> None:
    """Its transaction was rolled back, so a view that catches it may respond with what it likes."""

    def refuse(card: str) -> None:
        work.make_order(card)
        raise Declined

    def body(run: Any) -> Any:
        with suppress(Declined):
            run.step("order", refuse, "visa")
        return {"order": None}

    BODY.append(body)
    first, retry = send("decorator"), send("decorator")
    assert (retry.content, retry["Idempotent-Replayed"], work.labels()) == (
        first.content,
        "true",
        [],
    )


@pytest.mark.parametrize("door", DOORS)
def test_a_view_that_was_killed(send: Send, door: str) -> None:
    """A retry after the lease continues, and calls under the same key."""
    PROVIDER.breaks["charge"] = Crash()
    with pytest.raises(Crash):
        send(door)
    IdempotencyRecord.objects.update(lease_until=F("created_at"))
    assert send(door).status_code == 201
    assert (PROVIDER.count("charge"), called(), work.labels()) == (
        1,
        ["charge", "charge"],
        ["order visa"],
    )
    assert len({key for _, key in PROVIDER.calls}) == 1


def test_atomic_steps_are_savepoints(send: Send) -> None:
    """A step that writes here works, and nothing is written beside it.

    One that calls elsewhere is refused.
    """
    BODY.append(lambda run: {"order": run.step("order", work.make_order, "visa")})
    first = send("atomic")
    assert (first.status_code, send("atomic").content) == (201, first.content)
    assert (work.labels(), states()) == (["order visa"], [])
    for body in (
        lambda run: run.step("charge", work.charge, 1),
        lambda run: run.step("order", work.make_order, "visa", undo=work.cancel_order),
    ):
        BODY[:] = [body]
        with pytest.raises(ConfigurationError, match='the guarantee is "atomic"'):
            send("atomic", key="another", raises=True)
    assert called() == []


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("by", ["variable", "observe"])
def test_off(
    send: Send, door: str, by: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While idempotency is off, or only observes, each step is done, every time, and nothing is
    remembered.
    """
    if by == "variable":
        monkeypatch.setenv(switch.VARIABLE, "on")
    else:
        settings.IDEMPOTENCY = {
            **settings.IDEMPOTENCY,
            "MODE": "django_idempotency.contrib.observe.OBSERVE",
        }
    assert [send(door).status_code, send(door).status_code] == [201, 201]
    END.append(Declined())
    assert send(door).status_code == 500
    assert (called(), work.labels()) == (["charge"] * 3, ["order visa"] * 3)
    assert not Step.objects.exists()


@pytest.mark.parametrize("door", ["decorator", "mixin", "async", "ninja"])
def test_without_the_app(send: Send, door: str, settings: Any) -> None:
    """The error says what to type, and nothing is done.

    A guarded view without steps needs no table.
    """
    settings.INSTALLED_APPS = [app for app in settings.INSTALLED_APPS if "steps" not in app]
    with pytest.raises(
        ConfigurationError, match=r'Add "django_idempotency.contrib.steps" to INSTALLED_APPS'
    ):
        send(door, raises=True)
    assert (called(), work.labels()) == ([], [])

    async def nothing(run: Any) -> Any:
        return {}

    BODY.append(nothing if door in ASYNC else lambda run: {})
    assert send(door).status_code == 201


@pytest.mark.parametrize("door", DOORS)
def test_a_view_that_was_killed_while_it_gave_up(send: Send, door: str) -> None:
    """The next request undoes the rest, and learns that the operation was cancelled, as does each
    after it.
    """
    END.append(Declined())
    PROVIDER.breaks["refund"] = Crash()
    with pytest.raises(Crash):
        send(door)
    IdempotencyRecord.objects.update(lease_until=F("created_at"))
    for said in ("created", "refused"):  # it ran, and undid the rest; then nothing runs any more
        cancelled = send(door)
        assert (cancelled.status_code, cancelled.json()["code"]) == (409, "operation-cancelled")
        assert cancelled["Idempotency-Status"] == said
    assert (PROVIDER.count("refund"), called()) == (1, ["charge", "refund", "refund"])
    assert states() == ["UNDONE", "UNDONE", "BARRIER"]
    assert work.labels()[1:] == [f"cancelled {Effect.objects.order_by('pk')[0].pk}"]


@pytest.mark.parametrize("door", DOORS)
def test_by_hand(send: Send, door: str) -> None:
    """A view that gives up itself has the last word: its response is stored, whatever its status
    is.
    """

    def body(run: Any) -> Any:
        run.step("charge", work.charge, 1, undo=work.refund)
        assert run.undo_steps()
        raise Http404

    async def abody(run: Any) -> Any:
        await run.astep("charge", work.acharge, 1, undo=work.arefund)
        assert await run.aundo_steps()
        raise PermissionDenied

    BODY.append(abody if door in ASYNC else body)
    first, retry = send(door), send(door)
    assert first.status_code == (403 if door in ASYNC else 404)
    assert (retry.content, retry["Idempotent-Replayed"]) == (first.content, "true")
    assert called() == ["charge", "refund"]
