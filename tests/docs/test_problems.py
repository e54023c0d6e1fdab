"""Every problem that a client can meet has its section, and the errors have their page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from django.http import HttpRequest
from django.test import override_settings

from django_idempotency import errors
from django_idempotency.contrib.publishing.schema import example_of
from django_idempotency.core.dialects import Default
from django_idempotency.core.standings import OperationState
from django_idempotency.errors import IdempotencyError, Problem
from django_idempotency.http.problems import body_of, headers, note_problem

from .pages import DOCS, anchors, blocks, checked, code, table, text

PAGE = "reference/problems.md"


def declared(base: type[IdempotencyError]) -> Iterator[type[IdempotencyError]]:
    """Yield the errors of errors.py, in its order."""
    for error in vars(errors).values():
        if (
            isinstance(error, type)
            and issubclass(error, base)
            and error.__module__ == errors.__name__
        ):
            yield error


def document(problem: Problem) -> dict[str, Any]:
    body: Any = body_of(problem, Default(), None)
    return dict(body)


def problems() -> dict[str, type[Problem]]:
    """Return code → the first error with it."""
    found: dict[str, type[Problem]] = {}
    for error in declared(Problem):
        assert issubclass(error, Problem)
        if hasattr(error, "code"):
            found.setdefault(error.code, error)
    return found


def test_the_anchors_are_the_codes() -> None:
    """The anchors are in the order of the code, for projects that set PROBLEM_DOCS to a page like
    this one.
    """
    *_, first = (number for number, anchor in enumerate(anchors(DOCS / PAGE)) if anchor == "codes")
    assert anchors(DOCS / PAGE)[first + 1 : -1] == list(problems())


def test_status_title_and_error() -> None:
    """Each section begins with what the client sees, and with what a caller in Python catches."""
    shown = re.findall(
        r"^## ([\w-]+)\n\n\*\*(\d+)\*\* · \*(.+)\* · `(\w+)`$", text(PAGE), re.MULTILINE
    )
    assert shown == [
        (code, str(problem.status), problem.title, problem.__name__)
        for code, problem in problems().items()
    ]


def test_the_states() -> None:
    """The page has every state, and what each code says."""
    assert [code(retry) for retry, _ in checked(PAGE, "Retries")] == list(errors.RETRIES)
    assert [code(state) for state, _ in checked(PAGE, "States")] == [
        state.value for state in OperationState
    ]
    rows = list(checked(PAGE, "Standings"))
    assert {code(name): code(retry) for name, retry, _ in rows} == {
        name: each.retry for name, each in problems().items()
    }
    shown = {code(name): state for name, _, state in rows if state != "-"}
    known = {
        name: kind.operation_state
        for name, kind in problems().items()
        if kind.operation_state is not None
    }
    assert list(shown) == list(known)
    assert [name for name, found in known.items() if f"`{found}`" not in shown[name]] == []
    assert "| `safe_new_key` | `false`:" in text(PAGE)


def test_the_overview() -> None:
    """The overview says what the client does, code by code."""
    assert [code(row[0]) for row in table(PAGE, "| code |")] == list(problems())


def test_the_example() -> None:
    """The response at the top is one of ours, member by member and header by header."""
    (block,) = [block.code for block in blocks(DOCS / PAGE) if block.language == "http"]
    head, _, body = block.partition("\n\n")
    shown = dict(line.split(": ", 1) for line in head.splitlines()[1:])
    problem = example_of(errors.RequestMismatch)
    assert json.loads(body) == {**document(problem), "operation_state": "completed"}
    request = HttpRequest()
    note_problem(request, problem)
    assert shown == {**headers(problem, request), "Content-Type": "application/problem+json"}


def test_what_the_tutorial_prints() -> None:
    """The tutorial prints the problem documents that a reader will see."""
    shown = [
        json.loads(line)
        for line in text("tutorial/first-charge.md").splitlines()
        if line.startswith('{"type"')
    ]
    missing, mismatch, running = (
        document(example_of(error))
        for error in (errors.KeyMissing, errors.RequestMismatch, errors.InProgress)
    )
    assert shown == [missing, {**mismatch, "operation_state": "completed"}, running]


@override_settings(IDEMPOTENCY={"PROBLEM_DOCS": "https://api.example.com/docs/problems/"})
def test_the_example_of_a_page() -> None:
    """With the setting that the page shows, the type is the one that the page shows."""
    assert '{"PROBLEM_DOCS": "https://api.example.com/docs/problems/"}' in text(PAGE)
    assert f"`{document(errors.RequestMismatch())['type']}`" in text(PAGE)
