"""With ENCRYPTION_KEYS the table of steps has nothing of a result, an argument or an error in
plain.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.utils import timezone
from pytest_django import Settings

from django_idempotency import StatusOnly, idempotent_function
from django_idempotency.contrib.steps.housekeeping import erase
from django_idempotency.contrib.steps.intervening import undo_by_hand
from django_idempotency.contrib.steps.models import Step
from django_idempotency.contrib.steps.running import Steps
from django_idempotency.errors import ConfigurationError, ResponseNotStored, StepResultNotStored
from django_idempotency.models import IdempotencyRecord
from django_idempotency.runtime.registry import stores
from tests.contrib.at_rest.sealed.keys import FIRST, SECOND

from . import work
from .test_resuming import operation
from .work import PROVIDER, Declined

pytestmark = [pytest.mark.any_database, pytest.mark.django_db(transaction=True)]

CANARY = "canary-4242"
#: What the attempts got from their steps.
SEEN: list[Any] = []


@idempotent_function(key="card", key_prefix="sealed")
def book(card: str) -> None:
    """Do a step here and one elsewhere, remember a refusal, and fail."""
    run = operation()
    SEEN.append(
        (run.step("echo", echo, card), run.step("charge", echo_elsewhere, card, undo=work.refund))
    )
    with pytest.raises(Declined, match=CANARY):
        run.step("book", work.book, 1, keep=[Declined])
    raise TimeoutError


def echo(card: str) -> str:
    return f"{card} here"


def echo_elsewhere(card: str, *, idempotency_key: str) -> str:
    PROVIDER.do("charge", idempotency_key)
    return f"{card} elsewhere"


def attempt() -> None:
    with pytest.raises(TimeoutError):
        book(CANARY)


def stored() -> bytes:
    """Return all bytes of the table, as its database has them."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {Step._meta.db_table}")
        values = [value for row in cursor.fetchall() for value in row]
    return b"|".join(
        bytes(value) if isinstance(value, (bytes, memoryview)) else str(value).encode()
        for value in values
    )


@pytest.fixture(autouse=True)
def _declined(settings: Settings) -> None:
    SEEN.clear()
    PROVIDER.fails["book"] = Declined(f"no money on {CANARY}")
    use(settings, FIRST)


def use(settings: Settings, *keys: str) -> None:
    settings.IDEMPOTENCY = {"GUARANTEE": "lease", "ENCRYPTION_KEYS": list(keys)}


@pytest.mark.parametrize("keys", [[FIRST], []], ids=["sealed", "plain"])
def test_at_rest(settings: Settings, keys: list[str]) -> None:
    """What is sealed opens again; without keys the same test finds the canary, so it would see
    one.
    """
    use(settings, *keys)
    attempt()
    assert Step.objects.count() == 3
    assert Step.objects.get(position=1).arguments is not None
    assert (CANARY.encode() in stored()) == (not keys)
    attempt()
    assert [(f"{CANARY} here", f"{CANARY} elsewhere")] * 2 == SEEN
    assert (PROVIDER.asked("charge"), PROVIDER.asked("book")) == (1, 1)


def test_a_new_key_opens_what_the_old_one_sealed(settings: Settings) -> None:
    """Keys are rotated as those of responses are."""
    attempt()
    use(settings, SECOND, FIRST)
    attempt()
    assert len(set(SEEN)) == 1


@pytest.mark.parametrize("keys", [[SECOND], []], ids=["another key", "off"])
def test_what_does_not_open(settings: Settings, keys: list[str]) -> None:
    """A step that is done is never done again, even if nobody can read its result."""
    attempt()
    use(settings, *keys)
    for _ in range(2):
        with pytest.raises(
            StepResultNotStored, match=r"The step 'echo' .* is done, and its result cannot be read"
        ):
            book(CANARY)
    assert (len(SEEN), PROVIDER.asked("charge")) == (1, 1)


def test_bytes_of_another_place(settings: Settings) -> None:
    """A sealed result opens at its own step only."""
    attempt()
    first, second = Step.objects.order_by("position")[:2]
    Step.objects.filter(pk=second.pk).update(result=first.result)
    with pytest.raises(StepResultNotStored, match="'charge'"):
        book(CANARY)


@idempotent_function(key="card", key_prefix="secret", extensions=[StatusOnly()])
def mint(card: str) -> str:
    """Return a secret that a step has made, which no process may keep."""
    run = operation()
    secret = run.step("echo", echo, card)
    charged = run.step("charge", echo_elsewhere, card)
    if PROVIDER.fails:
        raise TimeoutError
    return f"{secret} {charged}"


def test_what_must_not_be_stored(settings: Settings) -> None:
    """Without keys no step runs; with keys its result is sealed, and is deleted when the operation
    has ended.
    """
    settings.IDEMPOTENCY = {"GUARANTEE": "lease"}
    with pytest.raises(ConfigurationError, match="ENCRYPTION_KEYS"):
        mint(CANARY)
    assert (work.labels(), PROVIDER.calls, Step.objects.count()) == ([], [], 0)
    settings.IDEMPOTENCY = {"GUARANTEE": "lease", "ENCRYPTION_KEYS": [FIRST]}
    PROVIDER.fails["after the steps"] = TimeoutError()
    with pytest.raises(TimeoutError):
        mint(CANARY)
    assert None not in Step.objects.values_list("result", flat=True)
    PROVIDER.fails.clear()
    assert mint(CANARY) == f"{CANARY} here {CANARY} elsewhere"
    assert PROVIDER.asked("charge") == 1
    assert set(Step.objects.values_list("result", "arguments")) == {(None, None)}
    with pytest.raises(ResponseNotStored):
        mint(CANARY)


@idempotent_function(key="card", key_prefix="secret-undone", extensions=[StatusOnly()])
def mint_undoable(card: str) -> str:
    """Return a secret of a step that can be undone."""
    charged = operation().step("charge", echo_elsewhere, card, undo=work.refund, ask=work.found_out)
    if PROVIDER.fails:
        raise TimeoutError
    return f"{charged}"


def completed(*arguments: str) -> str:
    """Let those be dead that had taken a row, run the command, and return what it printed."""
    Step.objects.exclude(due_at=None).update(due_at=timezone.now() - timedelta(seconds=1))
    out = io.StringIO()
    call_command("idempotency_resume", "operations", *arguments, stdout=out)
    return out.getvalue()


@pytest.mark.parametrize("mints", [mint, mint_undoable])
def test_a_secret_of_one_that_died_at_its_end(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, mints: Callable[[str], str]
) -> None:
    """The response is stored, and the process dies before it deletes the results: the command
    does.
    """
    PROVIDER.fails.clear()
    with monkeypatch.context() as patching:
        patching.setattr(Steps, "close", lambda _: 1 / 0)
        mints(CANARY)
    assert None not in Step.objects.values_list("result", flat=True)
    assert "1 already ended" in completed()
    assert set(Step.objects.values_list("result", "due_at")) == {(None, None)}


@pytest.mark.parametrize("by", ["hand", "command", "again"])
def test_a_secret_of_one_that_is_undone(settings: Settings, by: str) -> None:
    """Undone by a person, by the command, or at its second try: then the results are gone."""
    with pytest.raises(TimeoutError):
        mint_undoable(CANARY)
    if by == "again":
        PROVIDER.fails["refund"] = TimeoutError()
    if by == "command":
        assert "Undone" in completed("--undo", str(Step.objects.get().record))
    else:
        record, store = Step.objects.get().record, stores["default"]
        undo_by_hand(store, record, using="default", audit=lambda _: None, ttl=60)
    if by == "again":
        assert None not in Step.objects.filter(position=1).values_list("result", flat=True)
        PROVIDER.fails.clear()
        assert "1 undone" in completed()
    assert len(PROVIDER.undone) == 1
    assert set(Step.objects.values_list("result", "due_at")) == {(None, None)}


def test_a_secret_whose_client_never_comes_back(settings: Settings) -> None:
    """What has no undo is not given up: its results go once its record is gone."""
    with pytest.raises(TimeoutError):
        mint(CANARY)
    record = Step.objects.order_by("pk")[0].record
    assert "1 waiting" in completed()
    assert None not in Step.objects.values_list("result", flat=True)
    with transaction.atomic():  # nobody needs them to undo it
        assert erase("default", record, erased=False) == 0
        assert set(Step.objects.values_list("result", flat=True)) == {None}
        transaction.set_rollback(True)
    IdempotencyRecord.objects.all().delete()
    assert "1 already ended" in completed()
    assert set(Step.objects.values_list("result", "due_at")) == {(None, None)}
