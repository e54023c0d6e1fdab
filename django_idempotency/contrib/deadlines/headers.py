"""How much time the headers of a request leave for it.

Decided without Django's request: see `left()`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from django.utils.dateparse import parse_datetime

from ...api import LONGEST
from ...errors import Problem

#: An instant, in Unix seconds or as RFC 3339 writes it.
INSTANT: Final = "X-Request-Deadline"
#: Seconds.
SECONDS: Final = "Request-Timeout"
#: gRPC over HTTP/2, "Requests": at most eight digits and a unit.
GRPC: Final = "grpc-timeout"
NAMES: Final = (INSTANT, SECONDS, GRPC)

_NUMBER = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?")  # a Unix time in milliseconds has 13 digits
_TIMEOUT = re.compile(r"([0-9]{1,8})([HMSmun])")
_UNITS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}


class RequestLate(Problem):
    """The deadline of this request passed before it arrived, so nothing was done. Send it again
    with more time.
    """

    status = 504
    code = "deadline-passed"
    title = "Deadline has passed"
    retry = "same-key"
    has_status = False
    delivery = "later"


class DeadlineMalformed(Problem):
    """A deadline of this request is malformed, so nothing was done."""

    status = 400
    code = "deadline-malformed"
    title = "Deadline is malformed"
    retry = "never"
    has_status = False
    delivery = "never"


def left(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the seconds until the earliest deadline, at least 0 and at most ten years; `None`
    without one.

    `headers` finds names in any case, as Django's do. Raises `DeadlineMalformed`.
    """
    found = [_left(name, headers[name].strip(), now) for name in NAMES if name in headers]
    return min(max(0.0, min(found)), LONGEST) if found else None


def _left(name: str, value: str, now: datetime) -> float:
    if name == GRPC:
        timeout = _TIMEOUT.fullmatch(value)
        if timeout is not None:
            return int(timeout[1]) * _UNITS[timeout[2]]
        raise DeadlineMalformed(
            f'{name} is up to eight digits and a unit of H, M, S, m, u or n, such as "1500m".'
        )
    if _NUMBER.fullmatch(value):
        return float(value) - (now.timestamp() if name == INSTANT else 0.0)
    if name == SECONDS:
        raise DeadlineMalformed(f'{name} is a number of seconds, such as "2.5".')
    instant = _instant(value)
    if instant is None:
        raise DeadlineMalformed(
            f"{name} is a Unix time in seconds or a time with its offset, such as "
            '"2026-11-27T20:00:00Z".'
        )
    return (instant - now).total_seconds()


def _instant(value: str) -> datetime | None:
    try:
        parsed = parse_datetime(value)
    except ValueError:  # well formed, but no such day
        return None
    return None if parsed is None or parsed.tzinfo is None else parsed
