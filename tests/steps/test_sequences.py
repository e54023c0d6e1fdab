"""Random operations, that crash at random places, are taken over, give up, and meet other code."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_idempotency.errors import IdempotencyError, OperationCancelled, StepsChanged
from django_idempotency.steps.models import Step
from testproject.payments.models import Effect

from ..functions.helpers import Clock
from . import work
from .test_resuming import guarded, operation
from .work import PROVIDER, Crash, Declined

pytestmark = [pytest.mark.django_db, pytest.mark.any_database]

#: Each kind of step: here, here with an undo, elsewhere, elsewhere with an undo.
KINDS = ("order", "order+", "charge", "charge+")
NUMBERS = count()
#: What happens to one attempt at one of its steps.
ACCIDENTS = ("before", "after", "error", "declined")


def take(number: int, kind: str, accident: str | None) -> Any:
    """Do one step of the operation, and let the accident happen in its body."""
    undoes, name = kind.endswith("+"), f"{kind.rstrip('+')}-{number}"

    def happen(when: str) -> None:
        if accident == when:
            raise Crash
        if when == "before" and accident == "declined":
            raise Declined
        if when == "after" and accident == "error":
            raise TimeoutError

    def here() -> int:
        happen("before")
        done = work.make_order(str(number))
        happen("after")
        return done

    def elsewhere(*, idempotency_key: str) -> str:
        happen("before")
        done = PROVIDER.do("charge", idempotency_key)
        happen("after")
        return done

    if kind.startswith("order"):
        return operation().step(name, here, undo=work.cancel_order if undoes else None, keep=[Declined])
    undo = {"undo": work.refund, "ask": work.found_out} if undoes else {}
    return operation().step(name, elsewhere, keep=[Declined], **undo)


@settings(max_examples=60, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=4),
    accidents=st.lists(st.tuples(st.integers(0, 3), st.sampled_from(ACCIDENTS)), max_size=5),
    changed_at=st.none() | st.integers(0, 4),
)
def test_whatever_happens(
    clock: Clock, kinds: list[str], accidents: list[tuple[int, str]], changed_at: int | None
) -> None:
    """Each step has at most one effect; what gave up has none left that can be undone; what ended has all of them."""
    work.reset()
    Step.objects.all().delete()
    Effect.objects.all().delete()
    attempt, card = 0, f"card-{next(NUMBERS)}"

    def body(card: str) -> str:
        at, accident = accidents[attempt] if attempt < len(accidents) else (None, None)
        names = ["other", *kinds] if changed_at == attempt and attempt else kinds
        for number, kind in enumerate(names):
            take(number, "order" if kind == "other" else kind, accident if number == at else None)
        return "done"

    book = guarded(body, undo_on=[Declined])
    work.ANSWER.append(
        lambda asked: asked.found(PROVIDER.effects[asked.key]) if asked.key in PROVIDER.effects else asked.run()
    )
    ended: Any = None
    while ended is None:
        try:
            ended = book(card)
        except (Declined, OperationCancelled) as error:
            ended = type(error)
        except (Crash, TimeoutError):
            clock.go(31)
        except StepsChanged:  # what the other code did cannot be continued by this one
            assert changed_at is not None
            ended = None if attempt == changed_at else "changed"
        except IdempotencyError:
            raise AssertionError("no other error of ours is possible here") from None
        attempt += 1
        assert attempt < 12, "it goes on"
    made = [label for label in work.labels() if label.startswith("order")]
    cancelled = [label for label in work.labels() if label.startswith("cancelled")]
    assert len(made) == len(set(made))
    assert len(cancelled) == len(set(cancelled))
    assert len(PROVIDER.undone) == len(set(PROVIDER.undone))
    undoable = sum(row.undo != "" and row.state == 5 for row in Step.objects.all())
    assert len(cancelled) + len(PROVIDER.undone) == undoable
    if ended == "done" and changed_at is None:
        assert (len(made), PROVIDER.count("charge")) == (
            sum(kind.startswith("order") for kind in kinds),
            sum(kind.startswith("charge") for kind in kinds),
        )
        assert cancelled == PROVIDER.undone == []
    elif ended not in ("done", "changed"):
        left = {row.name for row in Step.objects.exclude(undo="") if row.state in (1, 2, 4)}
        assert left == set()
