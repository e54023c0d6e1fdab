"""One table: how a value that JSON does not have is written in parts, and how it is read from them.

First the rows of Python's own types, then those of a project's classes. An instance of these is
read without calling `__init__`, `__post_init__` and validators: its fields are set to their former
values.
"""

from __future__ import annotations

import dataclasses
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import MISSING
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, Flag
from functools import partial
from pathlib import PosixPath, PurePosixPath, PureWindowsPath, WindowsPath
from types import MemberDescriptorType as Slot
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID
from zoneinfo import ZoneInfo

State: TypeAlias = dict[str, object]
Write: TypeAlias = Callable[[Any], Sequence[object]]
Read: TypeAlias = Callable[..., object]


class Codec(NamedTuple):
    """The name of a type in the bytes, and how its values are written in parts, and read."""

    tag: str
    write: Write
    read: Read


def _write_items(values: Sequence[object]) -> list[list[object]]:
    return [list(values)]


def _write_bytes(data: bytes) -> list[str]:
    return [b64encode(data).decode()]


_read_bytes = partial(b64decode, validate=True)


def _write_moment(value: datetime | time) -> list[object]:
    """Return ISO 8601 text, its fold if it has one, and its zone if that is more than an offset."""
    zone = value.tzinfo
    if zone is None or (
        type(zone) is timezone and str(zone) == str(timezone(zone.utcoffset(None)))
    ):
        return [value.isoformat(), value.fold] if value.fold else [value.isoformat()]
    return [value.replace(tzinfo=None).isoformat(), value.fold, zone]


def _read_moment(cls: Any, text: str, fold: int = 0, zone: tzinfo | None = None) -> object:
    value = cls.fromisoformat(text)
    return value.replace(fold=fold, tzinfo=zone or value.tzinfo) if fold or zone else value


_ROWS: tuple[tuple[type, Write, Read], ...] = (
    # An integer that is longer than Python reads from decimal digits.
    (int, lambda number: [hex(number)], lambda text: int(text, 16)),
    # NaN and the infinities.
    (float, lambda number: [repr(number)], float),
    # Base64.
    (bytes, _write_bytes, _read_bytes),
    (bytearray, _write_bytes, lambda text: bytearray(_read_bytes(text))),
    # A list of what they hold.
    (tuple, _write_items, tuple),
    (set, _write_items, set),
    (frozenset, _write_items, frozenset),
    # A list of pairs, where a key is not text, or is "$".
    (dict, lambda items: [[list(pair) for pair in items.items()]], dict),
    # Text that they are made of.
    *(
        (cls, lambda value: [str(value)], cls)
        for cls in (Decimal, UUID, PurePosixPath, PosixPath, PureWindowsPath, WindowsPath)
    ),
    # ISO 8601, and what it does not say.
    (date, lambda day: [day.isoformat()], date.fromisoformat),
    (time, _write_moment, partial(_read_moment, time)),
    (datetime, _write_moment, partial(_read_moment, datetime)),
    # The arguments that they are made of.
    (timedelta, lambda span: [span.days, span.seconds, span.microseconds], timedelta),
    (timezone, lambda zone: [zone.utcoffset(None), zone.tzname(None)], timezone),
    # A zone that was made of a file has no key, and ZoneInfo raises about that.
    (ZoneInfo, lambda zone: [ZoneInfo(zone.key).key], ZoneInfo),
)
#: The exact types that can be stored without being named anywhere, beside None, bool, str, list and
#: dict.
BUILTINS = {cls: Codec(cls.__name__, write, read) for cls, write, read in _ROWS}


# ----------------------------------------------------------------------------- classes of a project


def name_of(cls: type) -> str:
    """Name a class in the bytes. It always contains a dot, and our own tags never do."""
    return f"{cls.__module__}.{cls.__qualname__}"


def codec_of(cls: type[Any]) -> Codec | None:
    """Return the row of an Enum, NamedTuple, pydantic, dataclass or attrs class; `None` for any
    other.
    """
    row: tuple[Write, Read]
    # Flags go by value: before Python 3.11 a combination of them has no name.
    if issubclass(cls, Flag):
        row = (lambda member: [member.value], cls)
    # A member of another Enum goes by its name.
    elif issubclass(cls, Enum):
        row = (lambda member: [member.name], cls.__members__.__getitem__)
    # A NamedTuple is the list of its values; a field that was added has its default.
    elif issubclass(cls, tuple) and hasattr(cls, "_fields"):
        row = (_write_items, lambda values: cls(*values))
    # A subclass of these holds more than its fields say.
    elif issubclass(cls, (str, list, *BUILTINS, BaseException)):
        return None
    # A pydantic model is its fields, which of them were set, and extra and private values.
    elif hasattr(cls, "model_fields") and hasattr(cls, "__pydantic_fields_set__"):
        row = (_write_model, partial(_read_model, cls))
    # A dataclass or an attrs class is its fields, its slots and its other attributes.
    elif dataclasses.is_dataclass(cls) or hasattr(cls, "__attrs_attrs__"):
        names = names_of(cls)
        row = (
            lambda value: [state_of(value, names)],
            partial(_read_fields, cls, [*fields_of(cls)]),
        )
    else:
        return None
    return Codec(name_of(cls), *row)


def _write_model(value: Any) -> list[object]:
    known = type(value).model_fields
    fields = {name: item for name, item in vars(value).items() if name in known}
    rest = [value.model_extra, value.__pydantic_private__]
    return [fields, sorted(value.model_fields_set), *(() if rest == [None, None] else rest)]


def _read_model(cls: Any, fields: State, given: list[str], *rest: object) -> object:
    extra, private = rest or (None, None)
    value = object.__new__(cls)
    value.__setstate__(
        {
            "__dict__": with_defaults(fields, fields_of(cls)),
            "__pydantic_fields_set__": set(given),
            "__pydantic_extra__": extra,
            "__pydantic_private__": private,
        }
    )
    return value


def _read_fields(cls: type[object], fields: Iterable[Field], state: State) -> object:
    value = object.__new__(cls)
    restore(value, with_defaults(state, fields))
    return value


class Field(NamedTuple):
    """A field of a class, and what it has in an instance that was stored before there was one."""

    name: str
    #: Does `__init__` take it? Then an instance always has it.
    needed: bool
    default: object
    factory: Any


def fields_of(cls: Any) -> Iterator[Field]:
    """Yield the fields of a pydantic model, a dataclass or an attrs class: no other has any."""
    for name, model_field in getattr(cls, "model_fields", {}).items():
        make = partial(model_field.get_default, call_default_factory=True)
        yield Field(name, True, MISSING, MISSING if model_field.is_required() else make)
    declared = getattr(cls, "__attrs_attrs__", ())
    for field in dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else declared:
        default = MISSING if repr(field.default) == "NOTHING" else field.default
        factory = getattr(field, "default_factory", getattr(default, "factory", MISSING))
        yield Field(field.name, field.init, default, factory)


def with_defaults(state: State, fields: Iterable[Field]) -> State:
    """Return a state with the defaults of the fields that were added since it was stored."""
    for name, needed, default, factory in fields:
        if name not in state:
            if factory is not MISSING:
                state[name] = factory()
            elif default is not MISSING:
                state[name] = default
            elif needed:
                raise ValueError(f"there is a new field, {name}, without a default")
    return state


def names_of(cls: type) -> dict[str, None]:
    """Return the names of a class's fields and slots, each once."""
    return dict.fromkeys([*(field.name for field in fields_of(cls)), *slots_of(cls)])


def slots_of(cls: type, *, built_in: bool = False) -> Iterator[str]:
    """Yield the slots of a class, or those of Python's own that it inherits.

    They have the name that Python gives them: `__name` is `_Class__name`.
    """
    for base in cls.__mro__:
        if (base.__module__ == "builtins") is built_in:
            yield from (name for name, each in vars(base).items() if isinstance(each, Slot))


#: Where attrs keeps a hash with `cache_hash=True`: it differs in the next process.
_CACHED_HASH = "_attrs_cached_hash"


def state_of(value: object, names: Iterable[str]) -> State:
    """Return what an instance has of these names, and its other attributes, without what a cached
    property has left.
    """
    state = {name: getattr(value, name) for name in names if hasattr(value, name)}
    for name, item in getattr(value, "__dict__", {}).items():
        # typing records there that Page[Line](...) was called: that is not part of the value.
        if not (
            name in state
            or name == "__orig_class__"
            or hasattr(getattr(type(value), name, None), "__get__")
        ):
            state[name] = item
    if _CACHED_HASH in state:
        state[_CACHED_HASH] = None
    return state


def restore(value: object, state: State) -> None:
    """Set the fields of an instance, frozen or not, and its other attributes."""
    attributes = getattr(value, "__dict__", {})  # with slots, a field that has gone is dropped
    for name, item in state.items():
        if isinstance(getattr(type(value), name, None), Slot):
            object.__setattr__(value, name, item)
        else:
            attributes[name] = item
