"""How a value that JSON does not have is taken apart into parts, and how the parts become an equal
value again.

First Python's own types, then those of a project: without calling `__init__`, `__post_init__` and
validators, the fields of an instance are set to their former values.
"""

from __future__ import annotations

import dataclasses
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag
from pathlib import PosixPath, PurePosixPath, PureWindowsPath, WindowsPath
from types import MemberDescriptorType
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
    return type(zone) is timezone and zone.tzname(None) == timezone(zone.utcoffset(None)).tzname(
        None
    )


def _decode_moment(cls: type[Moment]) -> Callable[..., Moment]:
    def decode(text: str, fold: int = 0, zone: timezone | ZoneInfo | None = None) -> Moment:
        value = cls.fromisoformat(text).replace(fold=fold)
        return value if zone is None else value.replace(tzinfo=zone)

    return decode


def _encode_zone(zone: ZoneInfo) -> tuple[str]:
    if zone.key is None:
        raise ValueError("a ZoneInfo made from a file has no key")
    return (zone.key,)


#: The exact types that can be stored without being named anywhere, beside None, bool, str, list and
#: dict.
BUILTINS: dict[type, Codec] = {
    # Longer than Python reads from decimal digits.
    int: single("int", hex, lambda text: int(text, 16)),
    float: single("float", repr, float),  # NaN and the infinities
    bytes: single("bytes", lambda value: b64encode(value).decode(), _from_base64),
    bytearray: single(
        "bytearray",
        lambda value: b64encode(value).decode(),
        lambda text: bytearray(_from_base64(text)),
    ),
    tuple: single("tuple", list, tuple),
    set: single("set", list, set),
    frozenset: single("frozenset", list, frozenset),
    dict: single("dict", lambda value: [list(pair) for pair in value.items()], dict),
    Decimal: single("Decimal", str, Decimal),
    UUID: single("UUID", str, UUID),
    date: single("date", date.isoformat, date.fromisoformat),
    time: Codec("time", _encode_moment, _decode_moment(time)),
    datetime: Codec("datetime", _encode_moment, _decode_moment(datetime)),
    timedelta: Codec(
        "timedelta", lambda value: (value.days, value.seconds, value.microseconds), timedelta
    ),
    timezone: Codec(
        "timezone", lambda value: (value.utcoffset(None), value.tzname(None)), timezone
    ),
    ZoneInfo: Codec("ZoneInfo", _encode_zone, ZoneInfo),
    **{
        cls: single(cls.__name__, str, cls)
        for cls in (PurePosixPath, PosixPath, PureWindowsPath, WindowsPath)
    },
}


# ----------------------------------------------------------------------------- classes of a project

#: Where attrs' cache_hash=True keeps a hash: it differs in the next process.
_CACHED_HASH = "_attrs_cached_hash"
_ABSENT = object()


def codec_of(cls: type) -> Codec | None:
    """Return the codec of a dataclass, attrs, pydantic, Enum or NamedTuple class; `None` for any
    other.
    """
    if issubclass(cls, Enum):
        return _enum(cls)
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return _named_tuple(cls)
    if issubclass(cls, (str, list, *BUILTINS, BaseException)):  # it holds more than its fields say
        return None
    if hasattr(cls, "model_fields") and hasattr(cls, "__pydantic_fields_set__"):
        return _pydantic(cls)
    return (
        _fielded(cls) if dataclasses.is_dataclass(cls) or hasattr(cls, "__attrs_attrs__") else None
    )


def name_of(cls: type) -> str:
    """Name a class in the bytes. It always contains a dot, and our own tags never do."""
    return f"{cls.__module__}.{cls.__qualname__}"


def _enum(cls: type[Enum]) -> Codec:
    """Members go by name.

    A combination of flags has none before Python 3.11, so flags go by value.
    """
    if issubclass(cls, Flag):
        return single(name_of(cls), lambda member: member.value, cls)
    return single(name_of(cls), lambda member: member.name, cls.__members__.__getitem__)


def _named_tuple(cls: type[Any]) -> Codec:
    def decode(values: list[Any]) -> Any:
        values = [*values, *(cls._field_defaults[name] for name in cls._fields[len(values) :])]
        if len(values) != len(cls._fields):
            raise ValueError(f"{name_of(cls)} has other fields by now")
        return tuple.__new__(cls, values)

    return single(name_of(cls), list, decode)


class Field(NamedTuple):
    """A field, and what it has in an instance that was stored before the class had the field."""

    name: str
    missing: Callable[[], Any] | None
    required: bool


def fields_of(cls: Any) -> Iterator[Field]:
    """Yield the fields of a dataclass or an attrs class; a plain class has none."""
    slots = slots_of(cls)
    if dataclasses.is_dataclass(cls):
        for field in dataclasses.fields(cls):
            missing = None if field.default is dataclasses.MISSING else _always(field.default)
            if field.default_factory is not dataclasses.MISSING:
                missing = field.default_factory
            yield Field(field.name, missing, field.init and missing is None)
        declared = {field.name for field in dataclasses.fields(cls)}
        # Of its bases.
        yield from (Field(name, None, required=False) for name in slots if name not in declared)
    elif hasattr(cls, "__attrs_attrs__"):
        for field in cls.__attrs_attrs__:
            missing = getattr(field.default, "factory", _always(field.default))
            if repr(field.default) == "NOTHING" or getattr(field.default, "takes_self", False):
                missing = None
            yield Field(field.name, missing, field.init and missing is None)
        if hasattr(cls, _CACHED_HASH):  # a slot
            yield Field(_CACHED_HASH, lambda: None, required=False)


def _always(value: Any) -> Callable[[], Any]:
    return lambda: value


def _fielded(cls: type) -> Codec:
    """Return the codec of a class with fields, by their names."""
    fields = tuple(fields_of(cls))

    def decode(state: dict[str, Any]) -> Any:
        value: Any = object.__new__(cls)
        restore(value, fields, state)
        return value

    return Codec(name_of(cls), lambda value: (state_of(cls, fields, value),), decode)


def slots_of(cls: type) -> list[str]:
    """Return the names of a class's slots and of its bases', as Python keeps them: `__name` is
    `_Class__name`.

    The fields of Python's own classes are not declared by `__slots__`.
    """
    owners = (vars(base) for base in cls.__mro__ if "__slots__" in vars(base))
    return [
        name
        for owner in owners
        for name, found in owner.items()
        if isinstance(found, MemberDescriptorType)
    ]


def state_of(cls: type, fields: Iterable[Field], value: Any) -> dict[str, Any]:
    """Return the fields and the rest of an instance's `__dict__`, except what a cached property
    left there.
    """
    state = {
        name: found
        for name, _, _ in fields
        if (found := getattr(value, name, _ABSENT)) is not _ABSENT
    }
    for name, item in getattr(value, "__dict__", {}).items():
        # typing records there that Page[Line](...) was called: that is not part of the value.
        if (
            name not in state
            and name != "__orig_class__"
            and not hasattr(getattr(cls, name, None), "__get__")
        ):
            state[name] = item
    return {**state, _CACHED_HASH: None} if _CACHED_HASH in state else state


def restore(value: Any, fields: Iterable[Field], state: dict[str, Any]) -> None:
    """Set an instance's fields, frozen or not, and the rest of its `__dict__`."""
    for name, missing, required in fields:
        if name in state:
            object.__setattr__(value, name, state.pop(name))
        elif missing is not None:
            object.__setattr__(value, name, missing())
        elif required:
            raise ValueError(f"{name_of(type(value))} has a new field, {name}, without a default")
    if hasattr(value, "__dict__"):  # with slots, a field that the class no longer has is dropped
        value.__dict__.update(state)


def _pydantic(cls: Any) -> Codec:
    """Use the copy protocol of pydantic's models: the values as they are, which are set, and extra
    and private ones.
    """

    def encode(value: Any) -> tuple[Any, ...]:
        state = value.__getstate__()
        fields = {
            name: item for name, item in state["__dict__"].items() if name in cls.model_fields
        }
        given = sorted(state["__pydantic_fields_set__"])
        rest = state.get("__pydantic_extra__"), state.get("__pydantic_private__")
        return (fields, given) if rest == (None, None) else (fields, given, *rest)

    def decode(
        fields: dict[str, Any], given: list[str], extra: Any = None, private: Any = None
    ) -> Any:
        for name, field in cls.model_fields.items():
            if name not in fields:
                if field.is_required():
                    raise ValueError(f"{name_of(cls)} has a new field, {name}, without a default")
                fields[name] = field.get_default(call_default_factory=True)
        value: Any = object.__new__(cls)
        value.__setstate__(
            {
                "__dict__": fields,
                "__pydantic_fields_set__": set(given),
                "__pydantic_extra__": extra,
                "__pydantic_private__": private,
            }
        )
        return value

    return Codec(name_of(cls), encode, decode)
