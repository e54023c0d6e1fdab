"""Whether an optional app may say how a work ends: one answer, for requests and for functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_idempotency import idempotent_function
from django_idempotency.core.policy import Policy
from django_idempotency.functions import call
from django_idempotency.functions.current import CurrentOperation
from django_idempotency.http import plan
from django_idempotency.http.exchange import RequestIdempotency
from django_idempotency.runtime.handle import Course, OperationHandle, has_course


class OwnCourse(Course):
    """As an optional app's."""


def with_course(handle: type[Any]) -> type[Any]:
    return type("Handle", (handle,), {"_course": OwnCourse})


def plan_of_requests() -> Any:
    return plan.Plan(Policy())


def plan_of_calls() -> Any:
    @idempotent_function(key_prefix="test_handle.pay")
    def pay(amount: int) -> None:
        pass

    guarded: Any = pay
    return call.Plan(guarded.idempotency._terms)


@pytest.mark.parametrize("handle", [OperationHandle, RequestIdempotency, CurrentOperation])
def test_only_an_app_s_handle_has_a_course(handle: type[OperationHandle]) -> None:
    assert has_course(handle) is False
    assert has_course(with_course(handle)) is True


@pytest.mark.parametrize(("module", "made"), [(plan, plan_of_requests), (call, plan_of_calls)])
def test_a_plan_says_so(
    monkeypatch: pytest.MonkeyPatch, module: Any, made: Callable[[], Any]
) -> None:
    """A plan asks once, and keeps the answer."""
    monkeypatch.setattr(module, "extended", lambda handle: handle)
    assert made().has_course is False
    monkeypatch.setattr(module, "extended", with_course)
    assert made().has_course is True
