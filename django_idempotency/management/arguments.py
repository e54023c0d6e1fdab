"""Arguments of our commands: numbers, spans of time, and moments."""

from __future__ import annotations

from argparse import ArgumentTypeError
from datetime import datetime, time, timedelta
from typing import Any

from django.conf import settings
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime

#: The largest LIMIT that every database accepts.
MOST_ROWS = 2**63 - 1
#: A year, in seconds.
MOST_SECONDS = 365 * 86_400
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def add_record(parser: Any, **of_scope: Any) -> None:
    """Add what names one record, which `sought()` reads. `of_scope` is what else is said of the first argument."""
    parser.add_argument(
        "scope",
        help='Whose key it is, exactly, such as "user:auth.user:7"; or alone the operation_ref of a problem document.',
        **of_scope,
    )
    parser.add_argument("key", nargs="?", help="The key, exactly, without the quotes of its header.")
    parser.add_argument("--realm", metavar="NAME", help="The realm of the scope, if the scope does not name it.")


def add_store(parser: Any) -> None:
    parser.add_argument("--store", metavar="ALIAS", help='In IDEMPOTENCY["STORES"]; that of IDEMPOTENCY["STORE"].')


def positive(text: str) -> int:
    return int(_number(int, text, least=1, most=MOST_ROWS, words="a whole number of at least 1"))


def not_negative(text: str) -> float:
    return _number(float, text, least=0, most=MOST_SECONDS, words="a number of seconds, 0 or more")


def duration(text: str) -> float:
    """Read a span of time such as 90s, 5m, 2h or 1d. Returns seconds."""
    number, unit = (text[:-1], text[-1:]) if text[-1:] in _UNITS else (text, "s")
    try:
        return not_negative(number) * _UNITS[unit]
    except ArgumentTypeError as error:
        raise ArgumentTypeError(f"{text!r} is not a span of time, such as 90s, 5m, 2h or 1d.") from error


def moment(text: str) -> datetime:
    """Read a moment: a span before now, "today" or "yesterday" (at midnight), a date, or a date with a time.

    Without an offset it is in the current time zone. It is aware if USE_TZ is set.
    """
    now = timezone.localtime() if settings.USE_TZ else datetime.now()  # noqa: DTZ005 - as the project's times are
    midnights = {"today": now.date(), "yesterday": now.date() - timedelta(days=1)}
    try:
        if text in midnights:
            return _as_stored(datetime.combine(midnights[text], time.min))
        if exact := parse_datetime(text):
            return _as_stored(exact)
        if day := parse_date(text):
            return _as_stored(datetime.combine(day, time.min))
        return now - timedelta(seconds=duration(text))
    except (ArgumentTypeError, ValueError, OverflowError) as error:
        words = "a span such as 24h, today, yesterday, 2026-11-23, or 2026-11-23T08:00"
        raise ArgumentTypeError(f"{text!r} is not a moment: {words}.") from error


def _as_stored(value: datetime) -> datetime:
    """Return a moment as the project's models have it: aware, or naive without USE_TZ."""
    if settings.USE_TZ:
        return timezone.make_aware(value) if timezone.is_naive(value) else value
    return timezone.make_naive(value) if timezone.is_aware(value) else value


def _number(kind: Any, text: str, *, least: int, most: int, words: str) -> float:
    try:
        value = kind(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        limit = f", and at most {most}" if value > most else ""
        raise ArgumentTypeError(f"{text!r} is not {words}{limit}.")
    return float(value) if kind is float else int(value)
