"""How a value that JSON does not have is taken apart into parts, and how the parts become an equal value again.

Here are Python's own types; class_types.py has those of a project.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import PosixPath, PurePosixPath, PureWindowsPath, WindowsPath
from typing import Any, NamedTuple, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

Moment = TypeVar("Moment", datetime, time)


class Codec(NamedTuple):
    """The name of a type in the bytes, and how its values become parts and parts its values."""

    tag: str
    encode: Callable[[Any], tuple[Any, ...]]
    decode: Callable[..., Any]


def single(tag: str, encode: Callable[[Any], Any], decode: Callable[[Any], Any]) -> Codec:
    """Return the codec of a type with one part."""
    return Codec(tag, lambda value: (encode(value),), decode)


def _from_base64(text: str) -> bytes:
    return b64decode(text, validate=True)


def _encode_moment(value: datetime | time) -> tuple[Any, ...]:
    """Split a datetime or a time into ISO 8601 text, its fold, and a zone that has a name."""
    zone = value.tzinfo
    if zone is None or zone is timezone.utc or _nameless(zone):
        return (value.isoformat(), 1) if value.fold else (value.isoformat(),)
    return value.replace(tzinfo=None).isoformat(), value.fold, zone


def _nameless(zone: object) -> bool:
    """Is this zone an offset from UTC, and no more?"""
    return type(zone) is timezone and zone.tzname(None) == timezone(zone.utcoffset(None)).tzname(None)


def _decode_moment(cls: type[Moment]) -> Callable[..., Moment]:
    def decode(text: str, fold: int = 0, zone: timezone | ZoneInfo | None = None) -> Moment:
        value = cls.fromisoformat(text).replace(fold=fold)
        return value if zone is None else value.replace(tzinfo=zone)

    return decode


def _encode_zone(zone: ZoneInfo) -> tuple[str]:
    if zone.key is None:
        raise ValueError("a ZoneInfo made from a file has no key")
    return (zone.key,)


#: The exact types that can be stored without being named anywhere, beside None, bool, str, list and dict.
BUILTINS: dict[type, Codec] = {
    int: single("int", hex, lambda text: int(text, 16)),  # longer than Python reads from decimal digits
    float: single("float", repr, float),  # NaN and the infinities
    bytes: single("bytes", lambda value: b64encode(value).decode(), _from_base64),
    bytearray: single("bytearray", lambda value: b64encode(value).decode(), lambda text: bytearray(_from_base64(text))),
    tuple: single("tuple", list, tuple),
    set: single("set", list, set),
    frozenset: single("frozenset", list, frozenset),
    dict: single("dict", lambda value: [list(pair) for pair in value.items()], dict),
    Decimal: single("Decimal", str, Decimal),
    UUID: single("UUID", str, UUID),
    date: single("date", date.isoformat, date.fromisoformat),
    time: Codec("time", _encode_moment, _decode_moment(time)),
    datetime: Codec("datetime", _encode_moment, _decode_moment(datetime)),
    timedelta: Codec("timedelta", lambda value: (value.days, value.seconds, value.microseconds), timedelta),
    timezone: Codec("timezone", lambda value: (value.utcoffset(None), value.tzname(None)), timezone),
    ZoneInfo: Codec("ZoneInfo", _encode_zone, ZoneInfo),
    **{cls: single(cls.__name__, str, cls) for cls in (PurePosixPath, PosixPath, PureWindowsPath, WindowsPath)},
}
