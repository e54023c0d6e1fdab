"""What is done is not done again, whatever breaks off in between."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_idempotency import deadline, idempotent_function
from django_idempotency.contrib.steps.models import Step
from django_idempotency.contrib.steps.rules import StepState
from django_idempotency.engine import deadlines
from django_idempotency.engine.borders import Border, watched_by
from django_idempotency.errors import (
    ConfigurationError,
    HeldForPerson,
    OwnershipLost,
    StepResultNotStored,
    StepsChanged,
)
from django_idempotency.functions import current_operation

from ...functions.helpers import Clock
from . import work
from .work import PROVIDER, Crash, Declined

pytestmark = pytest.mark.django_db


def operation() -> Any:
    """Return the call that runs."""
    current = current_operation()
    assert current is not None
    return current


def guarded(body: Any, **terms: Any) -> Any:
    """Return a guarded function of a card, whose body gets it."""

    @idempotent_function(key="card", key_prefix="book", **terms)
    def book(card: str) -> Any:
        return body(card)

    return book


def booking(card: str) -> Any:
    """Do three things: one here, two elsewhere."""
    order = operation().step("order", work.make_order, card)
    charged = operation().step("charge", work.charge, order, undo=work.refund, ask=work.found_out)
    booked = operation().step("book", work.book, order)
    return [order, charged, booked]


def test_all_is_done_once(clock: Clock) -> None:
    """Each step is done, and a replay does none."""
    book = guarded(booking)
    first = book("visa")
    assert book("visa") == first
    assert (work.labels(), PROVIDER.asked("charge"), PROVIDER.asked("book")) == (
        ["order visa"],
        1,
        1,
    )


@pytest.mark.parametrize("breaks", ["charge", "book"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_continues_after_what_is_done(clock: Clock, breaks: str, when: str) -> None:
    """A step that broke off elsewhere is repeated with its key; those before it return what they
    returned.
    """
    book = guarded(booking)
    (PROVIDER.fails if when == "before" else PROVIDER.breaks)[breaks] = Crash()
    with pytest.raises(Crash):
        book("visa")
    PROVIDER.fails.clear()
    clock.go(31)
    _, charged, booked = book("visa")
    assert work.labels() == ["order visa"]
    assert (PROVIDER.count("charge"), PROVIDER.count("book")) == (1, 1)
    assert {charged, booked} == set(PROVIDER.effects.values())
    assert PROVIDER.asked(breaks) == 2
    assert len({key for what, key in PROVIDER.calls if what == breaks}) == 1


def test_an_error_continues_too(clock: Clock) -> None:
    """An exception that is not a result frees the key for the same request, which goes on after
    what is done.
    """
    book = guarded(booking)
    PROVIDER.fails["book"] = TimeoutError()
    with pytest.raises(TimeoutError):
        book("visa")
    PROVIDER.fails.clear()
    book("visa")
    assert (work.labels(), PROVIDER.asked("charge"), PROVIDER.asked("book")) == (
        ["order visa"],
        1,
        2,
    )


def test_what_it_writes_here_goes_with_its_row(clock: Clock) -> None:
    """If a step that writes here fails, neither its writes nor its row stay."""

    def body(card: str) -> Any:
        return operation().step("order", broken, card)

    def broken(card: str) -> int:
        work.make_order(card)
        raise TimeoutError

    with pytest.raises(TimeoutError):
        guarded(body)("visa")
    assert (work.labels(), Step.objects.count()) == ([], 0)


def test_statements(clock: Clock) -> None:
    """A step costs one write beside its own; two if it can be undone.

    A retry reads all of them at once.
    """

    def body(card: str) -> None:
        with CaptureQueriesContext(connection) as captured:
            operation().step("order", work.make_order, card)
        counts.append([query["sql"].split()[0] for query in captured])
        with CaptureQueriesContext(connection) as captured:
            operation().step("book", work.book, 1)
        counts.append([query["sql"].split()[0] for query in captured])
        with CaptureQueriesContext(connection) as captured:
            operation().step("charge", work.charge, 1, undo=work.refund)
        counts.append([query["sql"].split()[0] for query in captured])
        if len(counts) == 3:
            raise TimeoutError

    counts: list[list[str]] = []
    book = guarded(body)
    with pytest.raises(TimeoutError):
        book("visa")
    book("visa")
    first, plain, undoable, *again = counts
    # Its own, and the row.
    assert [verb for verb in first if verb == "INSERT"] == [
        "INSERT",
        "INSERT",
    ]
    assert [verb for verb in plain if verb in ("SELECT", "INSERT", "UPDATE")] == ["INSERT"]
    assert [verb for verb in undoable if verb in ("SELECT", "INSERT", "UPDATE")] == [
        "INSERT",
        "UPDATE",
    ]
    assert again == [["SELECT", "UPDATE"], [], []]


def test_the_first_run_gets_the_stored_form(clock: Clock) -> None:
    """A tuple that would come back as one does; what a later attempt gets is what the first one
    got.
    """
    seen: list[Any] = []

    def body(card: str) -> None:
        seen.append(operation().step("pair", pair))
        if len(seen) == 1:
            raise TimeoutError

    def pair() -> dict[str, Any]:
        return {"shared": shared, "again": shared}

    shared = [1, 2]
    book = guarded(body)
    with pytest.raises(TimeoutError):
        book("visa")
    book("visa")
    assert seen[0] == seen[1]
    assert seen[0]["shared"] is not shared
    assert seen[0]["shared"] is not seen[0]["again"]


def test_a_result_that_cannot_be_stored(clock: Clock) -> None:
    """Elsewhere it has happened, so it is never repeated; here nothing is written."""

    def elsewhere(card: str) -> None:
        operation().step("charge", unstorable)

    def here(card: str) -> None:
        operation().step("order", unstorable_here, card)

    def unstorable(*, idempotency_key: str) -> object:
        PROVIDER.do("charge", idempotency_key)
        return object()

    def unstorable_here(card: str) -> object:
        work.make_order(card)
        return object()

    book = guarded(elsewhere)
    for _ in range(2):
        with pytest.raises(StepResultNotStored, match="charge"):
            book("visa")
    assert PROVIDER.asked("charge") == 1
    with pytest.raises(TypeError):
        guarded(here)("other")
    assert work.labels() == []


def test_a_kept_exception(clock: Clock) -> None:
    """An exception that is a step's result is raised again, and the step is not repeated."""
    book = guarded(declined)
    PROVIDER.fails["charge"] = Declined("no money")
    for _ in range(2):
        with pytest.raises(TimeoutError, match="no money"):
            book("visa")
    assert PROVIDER.asked("charge") == 1


def declined(card: str) -> None:
    """Take a refusal for a temporary failure of the whole."""
    try:
        operation().step("charge", work.charge, 1, keep=[Declined])
    except Declined as error:
        raise TimeoutError(str(error)) from error


# ---------------------------------------------------------------------------------------- most once


def once(card: str) -> Any:
    """Call a provider that does not deduplicate."""
    return operation().step("charge", work.charge, 1, at="most_once", ask=work.found_out)


@pytest.mark.parametrize("effect", [True, False])
def test_most_once_asks(clock: Clock, effect: bool) -> None:
    """What broke off is not repeated before the project says that it had no effect."""
    book = guarded(once)
    (PROVIDER.breaks if effect else PROVIDER.fails)["charge"] = Crash()
    with pytest.raises(Crash):
        book("visa")
    PROVIDER.fails.clear()
    clock.go(31)
    work.ANSWER.append(lambda asked: asked.found("charge-1") if effect else asked.run())
    assert book("visa") == ("charge-1" if effect else next(iter(PROVIDER.effects.values())))
    assert PROVIDER.asked("charge") == (1 if effect else 2)


@pytest.mark.parametrize("asks", [True, False])
def test_most_once_is_held(clock: Clock, asks: bool) -> None:
    """If nobody knows, a person must decide, and no retry does anything."""

    def body(card: str) -> Any:
        ask = work.found_out if asks else None
        return operation().step("charge", work.charge, 1, at="most_once", ask=ask)

    book = guarded(body)
    PROVIDER.breaks["charge"] = Crash()
    with pytest.raises(Crash):
        book("visa")
    clock.go(31)
    work.ANSWER.append(lambda asked: asked.hold())
    for _ in range(2):
        with pytest.raises(HeldForPerson):
            book("visa")
    clock.go(86400)
    with pytest.raises(HeldForPerson):
        book("visa")
    assert PROVIDER.asked("charge") == 1


@pytest.mark.parametrize("terms", [{"undo": work.refund}, {"at": "most_once"}])
def test_a_lease_that_ends_while_the_start_is_written(clock: Clock, terms: Any) -> None:
    """The body does not begin: another owner may have found the start by now, and have been told to
    run it.
    """

    def body(card: str) -> Any:
        run = operation()
        run.step("order", work.make_order, card)
        steps = run._steps
        steps.is_lost = lambda: bool(late)
        return run.step("charge", work.charge, 1, **terms)

    def ends(name: str, border: Border) -> None:
        if (name, border) == ("charge", Border.BEFORE):
            late.append(name)

    late: list[str] = []
    with watched_by(ends), pytest.raises(OwnershipLost):
        guarded(body)("visa")
    assert PROVIDER.asked("charge") == 0
    assert Step.objects.filter(name="charge", state=StepState.STARTED).count() == 1


# ----------------------------------------------------------------------------------------- refusals


def test_changed_code(clock: Clock) -> None:
    """Steps that are not those of the attempt that broke off are a named error, and nothing is
    done.
    """
    PROVIDER.fails["charge"] = TimeoutError()
    with pytest.raises(TimeoutError):
        guarded(booking)("visa")

    def renamed(card: str) -> None:
        operation().step("pay", work.make_order, card)

    with pytest.raises(StepsChanged, match="Step 1 of this operation was 'order', and is 'pay'"):
        guarded(renamed)("visa")
    assert work.labels() == ["order visa"]


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (
            lambda run: [run.step("a", work.make_order, "x"), run.step("a", work.make_order, "x")],
            "two steps 'a'",
        ),
        (
            lambda run: run.step("a", lambda: run.step("b", work.make_order, "x")),
            "inside the step 'a'",
        ),
        (lambda run: run.step("a", lambda: 1, here=False), "no argument idempotency_key"),
        (lambda run: run.step("a", work.charge, 1, undo=lambda charged: None), "not a lambda"),
        (lambda run: run.step("a", work.make_order, 1, at="most_once"), "exactly once without it"),
        (lambda run: run.step("a", work.make_order, 1, ask=work.found_out), "never breaks off"),
        (lambda run: run.step("a", work.charge, 1, at="once"), '"least_once" or "most_once"'),
        (lambda run: run.step(" ", work.make_order, 1), "1 to 100 characters"),
        (lambda run: run.step("a", here=True), "as a block"),
        (lambda run: run.step("a", work.acharge, 1), "await astep"),
    ],
)
def test_bad_use(clock: Clock, bad: Any, sentence: str) -> None:
    """A step that cannot be where it is says why."""
    with pytest.raises(ConfigurationError, match=sentence):
        guarded(lambda card: bad(operation()))("visa")


@pytest.mark.parametrize("then", ["step", "undo"])
def test_a_host_is_over_its_deadline(clock: Clock, then: str) -> None:
    """A host that thaws after its deadline, when its lease has ended, too, does no further step and
    undoes none.
    """

    def body(card: str) -> Any:
        operation().step("charge", work.charge, 1, undo=work.refund, ask=work.found_out)
        deadlines.ENDS.set(0.0)  # long ago
        if then == "undo":
            operation().undo_steps()
        return operation().step("book", work.book, 1)

    book = guarded(body)
    with deadline(60), pytest.raises(OwnershipLost):
        book("visa")
    assert (PROVIDER.asked("charge"), PROVIDER.asked("book"), PROVIDER.undone) == (1, 0, [])


def test_one_class_is_kept(clock: Clock) -> None:
    """`keep` takes one class of exceptions, too; what is not one is refused before anything
    runs.
    """

    def body(card: str) -> Any:
        return operation().step(
            "charge", work.charge, 1, keep=Declined if card == "visa" else "Declined"
        )

    PROVIDER.fails["charge"] = Declined()
    for _ in range(2):
        with pytest.raises(Declined):
            guarded(body)("visa")
    assert PROVIDER.asked("charge") == 1
    with pytest.raises(TypeError, match="keep takes classes of exceptions"):
        guarded(body)("amex")
    assert PROVIDER.asked("charge") == 1
