"""Encodes values by the rules of `core.canonical`: first scalars, each type behind a tag of its
own.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import Enum
from functools import partial
from itertools import pairwise
from pathlib import PurePath
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

#: The most steps of the path to a refused value that are shown.
_SHOWN = 8
SELECT = "Select what identifies the call with key=…"


class UnhashableValue(TypeError):
    """A value, or a part of it, cannot be hashed."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        #: The path to the part: names and indexes, outermost first.
        self.path: list[object] = []

    def __str__(self) -> str:
        where = "".join(map(_step, self.path[:_SHOWN])).removeprefix(".") + "…" * (
            len(self.path) > _SHOWN
        )
        return f"{where}: {self.reason}" if where else self.reason


class TooDeep(UnhashableValue):
    """A value is nested too deep, or contains itself."""


def _step(name: object) -> str:
    if isinstance(name, str):
        return f".{name}" if name.isidentifier() else f"[{name[:40]!r}]"
    return f"[{name}]" if isinstance(name, int) else f"[a key of type {type(name).__name__}]"


def _decimal(value: Decimal) -> str:
    sign, digits, exponent = value.as_tuple()
    if isinstance(exponent, str):
        return "d-inf;" if exponent == "F" and sign else "dinf;" if exponent == "F" else "dnan;"
    text = "".join(map(str, digits)).lstrip("0")
    significant = text.rstrip("0")
    if not significant:
        return "d0;"
    return f"d{'-' * sign}{significant}e{exponent + len(text) - len(significant)};"


def _date(value: dt.date) -> str:
    return f"D{value.toordinal():x};"


def _time(value: dt.time) -> str:
    offset = value.utcoffset()
    if offset is None:
        if value.tzinfo is not None:
            raise UnhashableValue(
                f"a time in a zone whose offset depends on the date cannot be hashed. {SELECT}"
            )
        return f"T{_of_day(value):x};"
    return f"U{_of_day(value):x}/{_microseconds(offset):x};"


def _datetime(value: dt.datetime) -> str:
    wall = value.toordinal() * 86_400_000_000 + _of_day(value)
    offset = value.utcoffset()
    return f"W{wall:x};" if offset is None else f"I{wall - _microseconds(offset):x};"


def _of_day(value: dt.time | dt.datetime) -> int:
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond


def _microseconds(value: dt.timedelta) -> int:
    return (value.days * 86400 + value.seconds) * 1_000_000 + value.microseconds


#: Type → how its values are written: scalars that end in ";".
SCALARS: dict[type, Callable[[Any], str]] = {
    type(None): lambda _: "n;",
    bool: lambda value: "y;" if value else "z;",
    int: lambda value: f"i{int.__index__(value):x};",  # in decimal, Python refuses 4301 digits
    float: lambda value: f"f{float.__add__(value, 0.0)!r};",  # -0.0 + 0.0 is 0.0
    Decimal: _decimal,
    UUID: lambda value: f"u{value.hex};",
    dt.datetime: _datetime,
    dt.date: _date,
    dt.time: _time,
    dt.timedelta: lambda value: f"P{_microseconds(value):x};",
}


# ------------------------------------------------------------------------------------------- values

#: A value that is nested deeper is assumed to contain itself.
MAX_DEPTH = 128


class CanonicalEncoder:
    """Encodes one value. Dicts with the same names, as in a list of rows, share the order of their
    names.

    Payloads consist mostly of text and integers in dicts and lists: those are encoded without a
    call for each.
    """

    __slots__ = ("_depth", "_layouts", "parts")

    def __init__(self) -> None:
        self.parts: list[str] = []
        self._layouts: dict[tuple[Any, ...], _Layout] = {}
        self._depth = 0

    def write(self, value: Any) -> None:
        kind = type(value)
        (_WRITERS.get(kind) or _writer_of(kind))(self, value)

    def encoded(self, value: Any) -> str:
        """Return the encoding of a value, without adding it."""
        kept = self.parts
        self.parts = []
        self.write(value)
        written = "".join(self.parts)
        self.parts = kept
        return written

    def sequence(self, value: Iterable[Any]) -> None:
        append = self.parts.append
        writers = _WRITERS
        index = 0
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _too_deep()
        append("[")
        try:
            # Reported if an item cannot be hashed.
            for index, item in enumerate(value):  # noqa: B007
                kind = type(item)
                if kind is str:
                    append(f"s{len(item)}:{item}")
                elif kind is int:
                    append(f"i{item:x};")
                else:
                    (writers.get(kind) or _writer_of(kind))(self, item)
        except UnhashableValue as error:
            error.path.insert(0, index)
            raise
        append("]")
        self._depth -= 1

    def dict(self, value: dict[Any, Any]) -> None:
        names = tuple(value)
        layout = self._layouts.get(names)
        if layout is None:
            layout = self.layout(names)
            # (1,) and (True,) are equal, and mean two things.
            if all(type(name) is str for name in names):
                self._layouts[names] = layout
        self.fields(layout, value.__getitem__)

    def layout(self, names: Iterable[Any]) -> _Layout:
        """Return encoded names in the order of their encoding.

        Raises `UnhashableValue` if two are encoded alike.
        """
        written = [(self.encoded(name), name) for name in names]
        layout = sorted(written, key=_first)
        if any(one[0] == other[0] for one, other in pairwise(layout)):
            raise UnhashableValue(
                "a mapping with two keys that are hashed alike cannot be hashed. " + SELECT
            )
        return layout

    def fields(self, layout: _Layout, get: Callable[[Any], Any]) -> None:
        append = self.parts.append
        writers = _WRITERS
        name = None
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _too_deep()
        append("{")
        try:
            for written, name in layout:
                item = get(name)
                kind = type(item)
                if kind is str:
                    append(f"{written}s{len(item)}:{item}")
                elif kind is int:
                    append(f"{written}i{item:x};")
                else:
                    append(written)
                    (writers.get(kind) or _writer_of(kind))(self, item)
        except UnhashableValue as error:
            error.path.insert(0, name)
            raise
        append("}")
        self._depth -= 1

    def set(self, value: Iterable[Any]) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _too_deep()
        self.parts.append(f"<{''.join(sorted({self.encoded(item) for item in value}))}>")
        self._depth -= 1

    def row(self, label: str, key: Any) -> None:
        self.parts.append(f"(s{len(label)}:{label}")
        self.write(key)
        self.parts.append(")")


_Layout = list[tuple[str, Any]]
_Writer = Callable[[CanonicalEncoder, Any], None]


def _too_deep() -> TooDeep:
    return TooDeep(
        f"what is nested deeper than {MAX_DEPTH} levels, or contains itself, cannot be "
        f"hashed. {SELECT}"
    )


def _first(pair: tuple[str, Any]) -> str:
    return pair[0]


def _write_text(encoder: CanonicalEncoder, value: str) -> None:
    value = str.__str__(value)
    encoder.parts.append(f"s{len(value)}:{value}")


def _write_sequence(encoder: CanonicalEncoder, value: Any) -> None:
    # The items that a subclass holds, whatever its own iteration yields.
    encoder.sequence(list.__iter__(value) if isinstance(value, list) else tuple.__iter__(value))


def _write_dict(encoder: CanonicalEncoder, value: dict[Any, Any]) -> None:
    # Bypasses a subclass's own access: a QueryDict holds all values of a name, and returns the
    # last.
    encoder.fields(encoder.layout(list(dict.keys(value))), partial(dict.__getitem__, value))


def _write_mapping(encoder: CanonicalEncoder, value: Mapping[Any, Any]) -> None:
    encoder.fields(encoder.layout(value), value.__getitem__)


def _write_bytes(encoder: CanonicalEncoder, value: bytes | bytearray | memoryview) -> None:
    text = bytes(value).decode("latin-1")
    encoder.parts.append(f"b{len(text)}:{text}")


def _scalar(text_of: Callable[[Any], str]) -> _Writer:
    def write(encoder: CanonicalEncoder, value: Any) -> None:
        encoder.parts.append(text_of(value))

    return write


def _path(encoder: CanonicalEncoder, value: PurePath) -> None:
    text = value.as_posix()
    encoder.parts.append(f"p{len(text)}:{text}")


#: The types of rules 1 to 4. A subclass is looked up along its bases, and remembered in `_FOUND`.
_WRITERS: dict[type, _Writer] = {
    **{kind: _scalar(text_of) for kind, text_of in SCALARS.items()},
    str: _write_text,
    bytes: _write_bytes,
    bytearray: _write_bytes,
    memoryview: _write_bytes,
    list: CanonicalEncoder.sequence,
    tuple: CanonicalEncoder.sequence,
    dict: CanonicalEncoder.dict,
    set: CanonicalEncoder.set,
    frozenset: CanonicalEncoder.set,
}
#: For subclasses, which may override access to what they hold.
_INHERITED: dict[type, _Writer] = {
    **_WRITERS,
    list: _write_sequence,
    tuple: _write_sequence,
    dict: _write_dict,
    PurePath: _path,
}
_FOUND: WeakKeyDictionary[type, _Writer] = WeakKeyDictionary()


# ------------------------------------------------------------------------------------------ objects


def _writer_of(kind: type) -> _Writer:
    """Return how values of a type are encoded, by rules 2, 5 and 6.

    Raises `UnhashableValue` by rule 7.
    """
    writer = _FOUND.get(kind)
    if writer is None:
        writer = _FOUND[kind] = _find(kind)
    return writer


def _find(kind: type) -> _Writer:  # noqa: PLR0911 - one for each rule
    if issubclass(kind, Enum):
        return lambda encoder, value: encoder.write(value._value_)
    if getattr(kind, "__pydantic_root_model__", False):
        return lambda encoder, value: encoder.write(value.root)
    names = field_names(kind)
    if names is not None:
        return _write_fields(kind, names)
    for base in kind.__mro__:
        if base in _INHERITED:
            return _INHERITED[base]
        if (base.__module__, base.__name__) == ("django.utils.functional", "Promise"):
            return lambda encoder, value: _write_text(encoder, str(value))
        if (base.__module__, base.__name__) == ("django.utils.functional", "LazyObject"):
            return _write_lazy
    if hasattr(getattr(kind, "_meta", None), "label_lower"):
        return _write_row
    if issubclass(kind, Mapping):
        return _write_mapping
    return _refuse


def field_names(kind: type) -> tuple[str, ...] | None:
    """Return the fields that a dataclass, an attrs class or a pydantic model compares by; `None`
    for another class.
    """
    if is_dataclass(kind):
        return tuple(field.name for field in fields(kind) if field.compare)
    if isinstance(declared := getattr(kind, "__attrs_attrs__", None), tuple):
        return tuple(field.name for field in declared if field.eq)
    declared = getattr(kind, "__pydantic_fields__", None) or getattr(kind, "model_fields", None)
    return tuple(declared) if isinstance(declared, dict) and hasattr(kind, "model_dump") else None


def _write_fields(kind: type, names: tuple[str, ...]) -> _Writer:
    layout = CanonicalEncoder().layout(names)
    kind_name = kind.__name__  # not the class itself, which _FOUND would keep alive

    def write(encoder: CanonicalEncoder, value: Any) -> None:
        def get(name: str) -> Any:
            try:
                return getattr(value, name)
            except AttributeError:
                raise UnhashableValue(
                    f"this field of {kind_name} was never set. {SELECT}"
                ) from None

        extra = getattr(value, "__pydantic_extra__", None)
        if not extra:
            encoder.fields(layout, get)
        else:  # extra="allow"
            encoder.fields(
                encoder.layout([*names, *extra]),
                lambda name: extra[name] if name in extra else get(name),
            )

    return write


def _write_row(encoder: CanonicalEncoder, value: Any) -> None:
    meta = value._meta
    key = value.pk
    if key is None or (isinstance(key, tuple) and None in key):  # a composite key, set in part
        raise UnhashableValue(
            f"a {type(value).__name__} that is not saved cannot be hashed. {SELECT}"
        )
    # A proxy is the same row, as in Django's own ==.
    encoder.row(getattr(meta.concrete_model, "_meta", meta).label_lower, key)


def _write_lazy(encoder: CanonicalEncoder, value: Any) -> None:
    value.__class__  # noqa: B018 - loads the object
    encoder.write(value.__dict__["_wrapped"])


def _refuse(_: CanonicalEncoder, value: Any) -> None:
    raise UnhashableValue(f"a value of type {type(value).__name__} cannot be hashed. {SELECT}")
