"""What the value of a policy's field may be, and how many keys a rate allows."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Any

#: A number of keys, and a number of seconds, minutes, hours or days.
_RATE = re.compile(r"[1-9][0-9]*/([1-9][0-9]*)?[smhd]")


def is_flag(value: Any) -> bool:
    """Is it `True` or `False`?"""
    return isinstance(value, bool)


def is_duration(value: Any) -> bool:
    """Is it a duration of at most ten years: seconds, or a `timedelta`?"""
    if isinstance(value, timedelta):
        return timedelta(0) < value <= timedelta(days=3650)
    return isinstance(value, (int, float)) and not is_flag(value) and 0 < value <= 3650 * 86400


def is_size(value: Any) -> bool:
    """Is it a number of bytes?"""
    return isinstance(value, int) and not is_flag(value) and value >= 0


def one_of(*names: str) -> Callable[[Any], bool]:
    """Return what accepts these texts."""
    return lambda value: isinstance(value, str) and value in names


def are_names(value: Any) -> bool:
    """Is it a collection of texts?"""
    return (
        isinstance(value, Collection) and not isinstance(value, (str, bytes)) and all(isinstance(n, str) for n in value)
    )


def are_statuses(value: Any) -> bool:
    """Is it a collection of statuses below 500?"""
    return (
        isinstance(value, Collection)
        and not isinstance(value, (str, bytes))
        and all(isinstance(status, int) and 100 <= status < 500 for status in value)
    )


def are_exceptions(value: object) -> bool:
    """Is it a collection of exception classes?"""
    return isinstance(value, Collection) and all(
        isinstance(each, type) and issubclass(each, Exception) for each in value
    )


def is_rate(value: Any) -> bool:
    """Is it a rate, such as "60/m"?"""
    return isinstance(value, str) and _RATE.fullmatch(value) is not None


def rate(text: str) -> tuple[int, int]:
    """Return how many keys a rate allows, and in how many seconds."""
    count, _, span = text.partition("/")
    return int(count), int(span[:-1] or 1) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[span[-1]]
