"""What the headers say, as a table; one clock."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from django.http.request import HttpHeaders

from django_idempotency.contrib.deadlines.headers import DeadlineMalformed, left

pytestmark = pytest.mark.unit

NOW = datetime(2026, 11, 27, 20, 0, tzinfo=timezone.utc)
TEN_YEARS = 3650 * 86400.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"X-Other": "5"}, None),
        ({"X-Request-Deadline": "2026-11-27T20:00:05Z"}, 5.0),
        ({"X-Request-Deadline": "2026-11-27T21:00:05+01:00"}, 5.0),
        ({"X-Request-Deadline": str(NOW.timestamp() + 5)}, 5.0),
        ({"X-Request-Deadline": "2026-11-27T19:59:59Z"}, 0.0),
        ({"X-Request-Deadline": "1"}, 0.0),
        ({"Request-Timeout": "2.5"}, 2.5),
        ({"Request-Timeout": " 0 "}, 0.0),
        ({"grpc-timeout": "1500m"}, 1.5),
        ({"grpc-timeout": "2H"}, 7200.0),
        ({"grpc-timeout": "99999999H"}, TEN_YEARS),  # as some clients write "no limit"
        (
            {
                "Request-Timeout": "9",
                "grpc-timeout": "3S",
                "X-Request-Deadline": "2026-11-27T20:00:05Z",
            },
            3.0,
        ),
    ],
)
def test_time_left(headers: dict[str, str], seconds: float | None) -> None:
    """The earliest deadline counts, and none lies in the past or beyond ten years."""
    sent = HttpHeaders(
        {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers.items()}
    )
    assert left(sent, NOW) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("X-Request-Deadline", "1764273600000", "Unix time in seconds"),  # milliseconds
        ("X-Request-Deadline", "2026-11-27T20:00:05", "with its offset"),
        ("X-Request-Deadline", "2026-13-27T20:00:05Z", "Unix time in seconds"),
        ("X-Request-Deadline", "", "Unix time in seconds"),
        ("Request-Timeout", "soon", "number of seconds"),
        ("Request-Timeout", "-1", "number of seconds"),
        ("Request-Timeout", "inf", "number of seconds"),
        ("Request-Timeout", "\u0665", "number of seconds"),
        ("Request-Timeout", "1e3", "number of seconds"),
        ("grpc-timeout", "5", "eight digits and a unit"),
        ("grpc-timeout", "123456789S", "eight digits and a unit"),
    ],
)
def test_malformed(name: str, value: str, said: str) -> None:
    """The message says what to type.

    A header that we cannot read is never taken for "no deadline".
    """
    with pytest.raises(DeadlineMalformed, match=said):
        left({name: value}, NOW)
