"""What the page of a refused form says: never that nothing was done where that is not proven."""

from __future__ import annotations

import re

import pytest
from django.test import RequestFactory
from django.utils import translation

from django_idempotency import errors
from django_idempotency.contrib.forms.dialect import page_of
from django_idempotency.errors import OperationCancelled, Problem
from tests.http.test_problems import PROBLEMS


class OfAProject(Problem):
    """A code that we do not know."""

    status, code, title = 409, "of-a-project", "A project's own"


def shown(problem: Problem) -> str:
    headers = {"Accept": "text/html", "Referer": "http://testserver/order/"}
    page = page_of(problem, RequestFactory().post("/order/", headers=headers), problem.status)
    assert page is not None
    return page


def invites(page: str) -> bool:
    """Does a page lead to another key, or say that nothing was done?"""
    said = re.search(
        r"nothing was done|was not processed<|open the form again</a>", page, re.IGNORECASE
    )
    return said is not None or "/order/" in page


def test_a_problem_about_a_record_never_says_that_nothing_was_done() -> None:
    """A record proves that a request with this key has arrived before."""
    for kind in PROBLEMS:
        assert not (kind.nothing_done and kind.operation_state)


def test_what_was_refused_for_its_key() -> None:
    """Only these: each was refused before any record was looked up, and a new key is the cure."""
    assert {kind.code for kind in PROBLEMS if kind.nothing_done} == {
        *("key-missing", "key-malformed", "key-too-short", "key-foreign", "key-not-issued"),
        *("key-expired", "key-ahead", "key-unsupported", "scope-required"),
    }


@pytest.mark.parametrize("kind", [*PROBLEMS, OfAProject])
def test_only_where_nothing_was_done_a_page_says_so(kind: type[Problem]) -> None:
    """A person who is led to a new form pays twice, if the first one did its work."""
    page = shown(kind())
    assert invites(page) is (kind.nothing_done)
    assert kind.code in page


def test_a_cancellation_proves_nothing() -> None:
    """An earlier attempt may have left no record."""
    assert "An earlier one may have been. Look up its result" in shown(OperationCancelled())


@pytest.mark.parametrize(
    "kind", [errors.OutcomeUnknown, errors.StoreUnavailable, errors.TransactionLost]
)
def test_what_is_unknown_is_sent_again_with_its_key(kind: type[Problem]) -> None:
    page = shown(kind())
    assert "<title>It is not known yet whether this form was processed</title>" in page
    assert "reload this page" in page


@pytest.mark.parametrize("kind", [*PROBLEMS, OfAProject])
def test_the_title_is_the_heading(kind: type[Problem]) -> None:
    """In each language."""
    for language in ("en", "de"):
        with translation.override(language):
            found = re.search(r"<title>(.+?)</title>.*<h1>(.+?)</h1>", shown(kind()), re.DOTALL)
        assert found is not None
        assert found[1] == found[2]
