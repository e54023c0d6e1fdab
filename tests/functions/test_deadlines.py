"""Deadlines of hosts, as functions of a given clock."""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from django_idempotency.engine.deadlines import _left
from django_idempotency.functions import deadline, remaining


class Invocation:
    def get_remaining_time_in_millis(self) -> int:
        return 2500


class Mocked(Invocation):
    """A context that has every attribute, as mocks do."""

    lambda_context = None


class Durable:
    """The context of AWS Lambda's durable functions."""

    lambda_context = Invocation()


def test_without_one() -> None:
    """Without a deadline the host has no limit."""
    assert remaining() is None


@pytest.mark.parametrize("limit", [2.5, timedelta(seconds=2.5), Invocation(), Mocked(), Durable()])
def test_spans(limit: Any) -> None:
    """Seconds, a timedelta, and the context of AWS Lambda are accepted."""
    assert _left(limit) == 2.5
    with deadline(limit):
        left = remaining()
        assert left is not None
        assert 2 < left <= 2.5
    assert remaining() is None


def test_an_instant() -> None:
    """An aware datetime is accepted; a naive one may mean another hour."""
    with deadline(datetime.now(timezone.utc) + timedelta(hours=1)):
        left = remaining()
        assert left is not None
        assert 3500 < left <= 3600
    with pytest.raises(ValueError, match="aware"), deadline(datetime(2026, 1, 1)):  # noqa: DTZ001
        pass


def test_the_nearer_one_counts() -> None:
    """An inner deadline cannot extend an outer one."""
    with deadline(10), deadline(1000):
        left = remaining()
        assert left is not None
        assert left <= 10
    with deadline(1000), deadline(10):
        left = remaining()
        assert left is not None
        assert left <= 10


def test_the_past() -> None:
    """After the deadline zero seconds are left, never fewer."""
    with deadline(-5):
        assert remaining() == 0


@pytest.mark.parametrize(
    "limit", [math.inf, math.nan, 1e300, datetime.max.replace(tzinfo=timezone.utc)]
)
def test_a_deadline_that_is_never_reached(limit: Any) -> None:
    """An infinite deadline is refused: its lease would never end."""
    with pytest.raises(ValueError, match="is too long"), deadline(limit):
        pass


@pytest.mark.parametrize("limit", [True, "soon", None])
def test_no_deadline_at_all(limit: Any) -> None:
    """The error lists what is accepted."""
    with pytest.raises(TypeError, match="deadline\\(\\) takes seconds"), deadline(limit):
        pass
