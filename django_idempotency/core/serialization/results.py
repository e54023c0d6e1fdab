"""A function's result as bytes and back: equal on the replay, in type and value. No pickle.

    1:{"id":7,"paid":{"$":["Decimal","12.50"]},"state":{"$":["shop.orders.State","PAID"]}}

A value that JSON represents exactly is written as is. Any other is an object with the single name
"$": its tag and its parts (the table is in codecs.py). A class of the project is its own tag, and
only the classes that were allowed are ever written or rebuilt: those that the function's return
annotation names. An object that occurs twice comes back as two equal ones.

Exceptions are stored by `functions.kept_exceptions`, with rows of its own.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from inspect import iscoroutinefunction
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

from .annotations import TypeCollector
from .codecs import BUILTINS, Codec, Read, codec_of, name_of

#: The version, written before the JSON. Another format has another.
VERSION = b"1:"
TAG = "$"
#: The deepest nesting. Reading a value back needs as much of the stack, wherever that happens.
MAX_DEPTH = 100

#: Where a value is: keys and indices, from the outermost.
Path: TypeAlias = tuple[Any, ...]

_TEXT: frozenset[type] = frozenset({str})
_EXACT: frozenset[type] = frozenset({str, bool, type(None)})
#: Includes numbers that JSON has; the encoder refuses the others.
_LIKELY: frozenset[type] = _EXACT | {int, float}
#: Longer integers (bits) are written in hexadecimal: Python may refuse to read them otherwise
#: (CVE-2020-10735).
_LONG = 1024

_encode = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":")
).encode


class Unstorable(TypeError):
    """This value cannot be stored."""


class Unreadable(ValueError):
    """These bytes were not written by us, or need a class that is not allowed or has changed."""


#: What Python's own types raise about a value. Any other exception is about it if it comes again.
ABOUT_VALUES = (
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)


def is_about_value(error: Exception, again: Callable[[], object]) -> bool:
    """Is an exception about the value that was being taken apart or built?

    `again` does the same once more.

    A time limit of a worker may raise there as anywhere, and is not: it does not come again. It
    must reach the worker, and must not cost a result that can be stored.
    """
    if isinstance(error, ABOUT_VALUES):
        return True
    try:
        again()
    except Exception as another:  # noqa: BLE001 - the project's serializer may raise any
        return type(another) is type(error)
    return False


class _Serialized(NamedTuple):
    """A result that a serializer writes. It is tagged, so it is never mistaken for one without."""

    result: object


@dataclass(eq=False)
class Results:
    """Values of Python's own types and of a project's classes, to bytes and back."""

    #: Follows the annotations that name these classes. It is called when they are first needed.
    follow: Callable[[TypeCollector], object]
    #: Names a value in messages.
    root: str = "result"
    #: What to do about a class that could be named, and about any other type.
    unnamed: str = ""
    unknown: str = ""
    #: Further rows of the table.
    more: Mapping[type, Codec] = field(default_factory=dict)
    #: Returns what stands for a value of another type; the value itself if nothing does.
    plain: Callable[[Any], object] = lambda value: value
    #: Does a serializer of the project write and read them?
    serialized: bool = False

    @cached_property
    def _named(self) -> TypeCollector:
        collector = TypeCollector()
        self.follow(collector)
        return collector

    @cached_property
    def _codecs(self) -> Mapping[type, Codec]:
        rows = self._named.found
        tags = Counter(codec.tag for codec in rows.values())
        # Two classes of one name cannot be distinguished in the bytes: neither is stored.
        named = {cls: codec for cls, codec in rows.items() if tags[codec.tag] == 1}
        return {**BUILTINS, **self.more, **named}

    @cached_property
    def _readers(self) -> Mapping[str, Read]:
        return {codec.tag: codec.read for codec in self._codecs.values()}

    @cached_property
    def _decode(self) -> Callable[[str], tuple[Any, int]]:
        return json.JSONDecoder(object_hook=self._build).raw_decode

    def dump(self, value: object) -> bytes:
        """Return a value as bytes.

        Raises `Unstorable` about the value, and an interrupt as it is.
        """
        if self.serialized and value is not None:  # a serializer is not asked about it
            value = _Serialized(value)
        try:
            try:
                text = _encode(self._tree(value, (), _LIKELY))
            except ValueError:
                text = _encode(self._tree(value, (), _EXACT))
            return VERSION + text.encode("utf-8", "surrogatepass")
        except Unstorable:
            raise
        except Exception as error:
            if not is_about_value(error, partial(self._tree, value, (), _EXACT)):
                raise
            raise Unstorable(
                f"The {self.root} cannot be stored: {type(error).__name__} in taking it apart."
            ) from error

    def load(self, data: bytes) -> Any:
        """Return what dump() was given: an equal value, made anew each time.

        Raises `Unreadable`, and interrupts as they are.
        """
        if not data.startswith(VERSION):
            raise Unreadable("These bytes were not written by this version.")
        text = ""
        try:
            text = data[len(VERSION) :].decode("utf-8", "surrogatepass")
            value, end = self._decode(text)
        except Unreadable:
            raise
        except Exception as error:
            if not is_about_value(error, partial(self._decode, text)):
                raise
            raise Unreadable(
                f"A stored {self.root} cannot be read: {type(error).__name__} in building it."
            ) from error
        if end < len(text):
            raise Unreadable(f"A stored {self.root} cannot be read: there is more behind it.")
        return value

    def _tree(self, value: Any, path: Path, leaves: frozenset[type]) -> object:
        """Return a value as JSON has it. `leaves` are the types that JSON has."""
        kind = type(value)
        if (
            kind in leaves
            or (kind is int and value.bit_length() <= _LONG)
            or (kind is float and math.isfinite(value))
        ):
            return value
        if len(path) > MAX_DEPTH:
            raise Unstorable(
                f"The {self.root} is nested more than {MAX_DEPTH} deep, or holds itself."
            )
        tree: object = value
        if kind is list:
            if not leaves.issuperset(map(type, value)):
                tree = [
                    item if type(item) in leaves else self._tree(item, (*path, index), leaves)
                    for index, item in enumerate(value)
                ]
        elif kind is dict and TAG not in value and _TEXT.issuperset(map(type, value)):
            if not leaves.issuperset(map(type, value.values())):
                tree = {
                    key: item if type(item) in leaves else self._tree(item, (*path, key), leaves)
                    for key, item in value.items()
                }
        elif kind in self._codecs:
            codec = self._codecs[kind]
            parts = [self._tree(part, path, leaves) for part in codec.write(value)]
            tree = {TAG: [codec.tag, *parts]}
        else:
            stands = self.plain(value)
            if stands is value:
                raise self._refusal(kind, path)
            tree = self._tree(stands, path, leaves)
        return tree

    def _build(self, found: dict[str, Any]) -> object:
        """Return the value that a JSON object represents.

        The objects inside it are already decoded.
        """
        if TAG not in found:
            return found
        tag, *parts = found[TAG]
        if tag not in self._readers:
            raise Unreadable(f"A stored {self.root} holds a {tag}, which is not allowed.")
        return self._readers[tag](*parts)

    def _refusal(self, kind: type, path: Path) -> Unstorable:
        says = f"and that class is not named. {self.unnamed}{self._named.gaps}"
        if codec_of(kind) is None:
            says = f"which cannot be stored. {self.unknown}"
        return Unstorable(f"{self.root}{''.join(map(_step, path))} is a {name_of(kind)}, {says}")


def _step(step: str | int) -> str:
    """Write a step of a path as JMESPath does.

    A key that is not a name may be a client's data, so it is not shown.
    """
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if step.isidentifier() else '."…"'


def results_for(function: Callable[..., object], serializer: Any = None) -> Results:
    """Return how the results of a function are stored.

    Raises `ValueError` for an invalid serializer.

    `serializer` is a pair of callables (dump, load), or an object that has both.
    """
    more: dict[type, Codec] = {}
    if serializer is not None:
        dump, load = _pair(serializer)
        more[_Serialized] = Codec("serialized", lambda value: [dump(value.result)], load)
    return Results(
        lambda named: named.follow(function, returned=True),
        unnamed="Name it in the function's return annotation, or give serializer=(dump, load).",
        unknown="Give serializer=(dump, load), or return plain data.",
        more=more,
        serialized=serializer is not None,
    )


def _pair(serializer: Any) -> Any:
    pair = serializer
    if not isinstance(serializer, (tuple, list)):
        pair = [getattr(serializer, name, None) for name in ("dump", "load")]
    if isinstance(serializer, ModuleType) or len(pair) != 2 or not all(map(callable, pair)):
        raise ValueError(
            "serializer takes (dump, load), such as (json.dumps, json.loads), or an object with "
            "both."
        )
    if any(map(iscoroutinefunction, pair)):
        raise ValueError(
            "serializer takes two sync functions, (dump, load), of an async function, too."
        )
    return pair
