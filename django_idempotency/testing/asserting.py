"""assert_idempotent(): twenty calls at once, one run, equal responses."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.db import connections
from django.http import HttpRequest

from .. import conf
from ..core.records import Guarantee
from ..runtime import switch
from ..runtime.registry import stores
from . import calling
from .calling import CallResult, ConcurrentCall

#: The events that mean that work begins.
BEGINS = frozenset({"claimed", "taken_over", "resumed"})

_Raises = type[Exception] | tuple[type[Exception], ...]


def assert_idempotent(
    act: Callable[[], Any] | HttpRequest,
    *,
    times: int = 20,
    effects: Callable[[], int] | None = None,
    raises: _Raises = (),
    concurrent: bool = True,
    timeout: float = 30.0,
) -> Any:
    """Call `act` `times` times at once and then once more: its work runs once, and all calls get
    equal responses.

    `act` is a function without arguments, or a RequestFactory request: each call then sends a fresh
    copy of it through the project's handler, middleware included. Functions are called in threads,
    coroutine functions (and the requests of AsyncRequestFactory) in tasks. A busy call is repeated
    for up to `timeout` seconds. `effects` returns a number that must have risen by one, such as
    `Charge.objects.count`. An exception listed in `raises` counts as a response. `concurrent=False`
    makes the calls one after the other, in this thread.

    Returns what the calls returned, or the exception that they raised. Raises `AssertionError` with
    what ran and how the responses differ, and `RuntimeError` if concurrent calls could not see what
    the test has written.
    """
    _refuse_event_loop()
    act = calling.carried(act) if isinstance(act, HttpRequest) else act
    make: Callable[[Any, list[ConcurrentCall], float], None]
    if iscoroutinefunction(act) or iscoroutinefunction(type(act).__call__):
        make = calling.gathered
    else:
        concurrent = concurrent and not _must_stay_in_this_thread()
        make = calling.together if concurrent else calling.one_by_one
    calls = [ConcurrentCall(number) for number in range(1, times + 2)]
    before = effects() if effects is not None else 0
    deadline = time.monotonic() + timeout
    with calling.listening():
        for group in (calls[:-1], calls[-1:]) if concurrent else ([call] for call in calls):
            make(act, group, deadline)
            if any(call.busy for call in group):
                break
    problems = list(_problems(calls, raises, timeout))
    if effects is not None and (risen := effects() - before) != 1:
        problems.append(f"effects() rose by {risen}, not by 1.")
    if problems:
        raise AssertionError(_report(calls, problems, raises)) from next(
            _errors(calls, raises), None
        )
    last = calls[-1]
    return last.result if last.error is None else last.error


# ------------------------------------------------------------------------------------ where to call


def _refuse_event_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError("An event loop runs here. Type await sync_to_async(assert_idempotent)(…).")


def _must_stay_in_this_thread() -> bool:
    """Are the test's writes invisible to other threads?

    Raises `RuntimeError` if they would wait for its records.
    """
    inside = any(each.in_atomic_block for each in connections.all(initialized_only=True))
    if inside and any(
        getattr(stores[alias], "using", None) is not None for alias in conf.get("STORES")
    ):
        calling.refuse_transaction(
            who="threads", otherwise=" Or type concurrent=False, to call one after the other."
        )
    return inside


# ----------------------------------------------------------------------------------- what was wrong


def _errors(calls: list[ConcurrentCall], raises: _Raises) -> Iterator[BaseException]:
    for call in calls:
        if call.error is not None and not call.busy and not isinstance(call.error, raises):
            yield call.error


def _problems(calls: list[ConcurrentCall], raises: _Raises, timeout: float) -> Iterator[str]:
    if silent := [call for call in calls if call.busy]:
        yield f"{len(silent)} of {len(calls)} calls got no response within {timeout:g} s."
    for error, count in Counter(map(repr, _errors(calls, raises))).most_common():
        yield f"{_calls(count)} raised: {error[:200]}"
    yield from _wrong_runs([call for call in calls if call.events or not call.busy])
    yield from _wrong_answers(calls, raises)


def _wrong_runs(calls: list[ConcurrentCall]) -> Iterator[str]:
    """Yield what did not run once.

    A call's own keys appear in all calls, nested keys only in the first run.
    """
    records = [{event.record for event in call.events} for call in calls]
    guarded = [seen for seen in records if seen]
    if not guarded:
        # By another server.
        if not any(call.answer is not None and call.answer.replayed for call in calls):
            off = "" if switch.enabled() else "idempotency is off. "
            yield (
                f"Nothing was guarded: {off}Is there a guard, and does the call send a key "
                "that has an owner?"
            )
        return
    if len(guarded) < len(calls):
        yield f"{_calls(len(calls) - len(guarded))} ran without a guard."
    common = set.intersection(*guarded)
    if not common:
        yield (
            f"The calls came under {len(set.union(*guarded))} different keys. A retry must "
            "bring the key of the first."
        )
    for record in common:
        runs = [call.number for call in calls for _ in range(_runs(call, record))]
        if runs != runs[:1] or not runs:
            where = (
                f", in the calls {', '.join(map(str, runs))}"
                if runs
                else ": its key was known before"
            )
            yield f"The work ran {len(runs)} times, not once{where}."
    if strays := [
        call.number for call in calls if common and _begun(call) and not _begun(call) & common
    ]:
        numbers = ", ".join(map(str, strays))
        yield (
            f"Beside what ran once, the calls {numbers} did work under keys that the first "
            "call had not."
        )


def _begun(call: ConcurrentCall) -> set[Any]:
    """Return the records that a call claimed. A replayed call claims none of its nested records."""
    return {event.record for event in call.events if event.name in BEGINS}


def _runs(call: ConcurrentCall, record: Any) -> int:
    """Count how often a call did the work.

    Work whose `atomic` guard was lost was rolled back, and is not counted.
    """
    own = [event for event in call.events if event.record == record]
    begun = sum(event.name in BEGINS for event in own)
    return begun - sum(
        event.name == "lost" and event.guarantee is Guarantee.ATOMIC for event in own
    )


def _wrong_answers(calls: list[ConcurrentCall], raises: _Raises) -> Iterator[str]:
    kinds = len(_answers(calls, raises))
    if kinds > 1:
        yield f"There are {kinds} different responses."
    http = [
        call.answer for call in calls if call.answer is not None and call.answer.status is not None
    ]
    if http and (fresh := sum(not answer.replayed for answer in http)) != 1:
        yield (
            f"{fresh} of {len(http)} responses have no Idempotent-Replayed, and one should be "
            "the first."
        )


def _answers(calls: list[ConcurrentCall], raises: _Raises) -> list[tuple[CallResult, list[int]]]:
    """Return each distinct response with the numbers of the calls that got it.

    Results need not be hashable.
    """
    given: list[tuple[CallResult, list[int]]] = []
    for call in calls:
        answer = CallResult.raised(call.error) if isinstance(call.error, raises) else call.answer
        if answer is None or call.busy:
            continue
        for known, numbers in given:
            if known == answer:
                numbers.append(call.number)
                break
        else:
            given.append((answer, [call.number]))
    return given


def _calls(count: int) -> str:
    return "1 call" if count == 1 else f"{count} calls"


def _report(calls: list[ConcurrentCall], problems: list[str], raises: _Raises) -> str:
    lines = [f"Not idempotent, of {_calls(len(calls))}:", *problems]
    lines += [f"{_calls(len(numbers))} got {answer}" for answer, numbers in _answers(calls, raises)]
    said = Counter(event.name for call in calls for event in call.events)
    if said:
        lines.append(
            "The guards said: "
            f"{', '.join(f'{name} {said[name]}' for name in calling.EVENTS if name in said)}."
        )
    if "locked" in str([call.error for call in calls]) and (
        why := calling.refused_database(who="Threads")
    ):
        lines.append(why)
    return "\n  ".join(lines)
