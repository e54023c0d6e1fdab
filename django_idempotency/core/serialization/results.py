"""A function's result as bytes and back: equal on the replay, in type and value. No pickle.

    1:{"id":7,"paid":{"$":["Decimal","12.50"]},"state":{"$":["shop.orders.State","PAID"]}}

A value that JSON represents exactly is written as is. Any other is an object with the single name
"$": its tag and its parts (see codecs.py). A class of the project is its own tag, and only the
classes that were allowed are ever written or rebuilt: those that the function's return annotation
names. An object that occurs twice comes back as two equal ones.

Exceptions are stored by `contrib.kept_exceptions`, with codecs of its own.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import cached_property, partial
from inspect import iscoroutinefunction
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple

from .annotations import TypeCollector
from .codecs import BUILTINS, Codec, codec_of, name_of

#: The version, written before the JSON. Another format has another.
VERSION = b"1:"
TAG = "$"
#: The deepest nesting. Reading a value back needs as much of the stack, wherever that happens.
MAX_DEPTH = 100

_EXACT: frozenset[type] = frozenset({str, bool, type(None)})
#: Includes numbers that JSON has; the encoder refuses the others.
_LIKELY: frozenset[type] = _EXACT | {int, float}
#: Longer integers (bits) are written in hexadecimal: Python may refuse to read them otherwise
#: (CVE-2020-10735).
_LONG = 1024
_NOTHING_MORE: Mapping[type, Codec] = MappingProxyType({})


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
    AssertionError,
    NotImplementedError,
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


def _itself(value: Any) -> Any:
    return value


class Results:
    """Values of Python's own types and of `classes`, to bytes and back."""

    def __init__(
        self,
        classes: Collection[type] = (),
        *,
        root: str = "result",
        unnamed: str = "",
        unknown: str = "",
        more: Mapping[type, Codec] = _NOTHING_MORE,
        plain: Callable[[Any], Any] = _itself,
    ) -> None:
        named = {cls: codec for cls in classes if (codec := codec_of(cls)) is not None}
        #: Are they of Python's own types alone, so that no code of the project takes them apart?
        self.is_plain = not named and not more
        tags = Counter(codec.tag for codec in named.values())
        # Two classes of one name cannot be distinguished in the bytes: neither is stored.
        self._codecs = {
            **BUILTINS,
            **more,
            **{cls: codec for cls, codec in named.items() if tags[codec.tag] == 1},
        }
        self._decoders = {codec.tag: codec.decode for codec in self._codecs.values()}
        self._root = root
        #: What to do about a class that could be allowed, and about any other type.
        self._unnamed = unnamed
        self._unknown = unknown
        #: Returns what stands for a value of another type; the value itself if nothing does.
        self._plain = plain
        self._decode = json.JSONDecoder(object_hook=self._build).raw_decode

    def dump(self, value: Any) -> bytes:
        """Return a value as bytes.

        Raises `Unstorable` about the value, and an interrupt as it is.
        """
        try:
            try:
                text = _encode(self._tree(value, (), _LIKELY))
            except ValueError:
                text = _encode(self._tree(value, (), _EXACT))
            return VERSION + text.encode("utf-8", "surrogatepass")
        except Unstorable:
            raise
        except RecursionError as error:
            raise Unstorable(f"The {self._root} is nested too deep to be stored.") from error
        except Exception as error:
            if not is_about_value(error, partial(self._tree, value, (), _EXACT)):
                raise
            raise Unstorable(
                f"The {self._root} cannot be stored: {type(error).__name__} in taking it apart."
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
                f"A stored {self._root} cannot be read: {type(error).__name__} in building it."
            ) from error
        if end != len(text):
            raise Unreadable(f"A stored {self._root} cannot be read: there is more than one value.")
        return value

    def _tree(self, value: Any, path: tuple[Any, ...], leaves: frozenset[type]) -> Any:
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
                f"The {self._root} is nested more than {MAX_DEPTH} deep, or holds itself."
            )
        if kind is dict and (tree := self._object(value, path, leaves)) is not None:
            return tree
        if kind is list:
            if leaves.issuperset(map(type, value)):
                return value
            return [
                item if type(item) in leaves else self._tree(item, (*path, index), leaves)
                for index, item in enumerate(value)
            ]
        codec = self._codecs.get(kind)
        if codec is None:
            stands = self._plain(value)
            if stands is value:
                raise self._refusal(kind, path)
            return self._tree(stands, path, leaves)
        return {TAG: [codec.tag, *[self._tree(part, path, leaves) for part in codec.encode(value)]]}

    def _object(
        self, value: dict[Any, Any], path: tuple[Any, ...], leaves: frozenset[type]
    ) -> dict[str, Any] | None:
        """Return a dict as JSON has it; `None` if it has a key that is not text, or our tag."""
        plain = True
        for key, item in value.items():
            if type(key) is not str or key == TAG:
                return None
            if type(item) not in leaves:
                plain = False
        if plain:
            return value
        return {
            key: item if type(item) in leaves else self._tree(item, (*path, key), leaves)
            for key, item in value.items()
        }

    def _build(self, found: dict[str, Any]) -> Any:
        """Return the value that a JSON object represents.

        The objects inside it are already decoded.
        """
        if TAG not in found:
            return found
        tag, *parts = found[TAG]
        if tag not in self._decoders:
            raise Unreadable(f"A stored {self._root} holds a {tag}, which is not allowed.")
        return self._decoders[tag](*parts)

    def _refusal(self, kind: type, path: tuple[Any, ...]) -> Unstorable:
        where = self._root + "".join(_step(step) for step in path)
        if codec_of(kind) is None:
            return Unstorable(
                f"{where} is a {name_of(kind)}, which cannot be stored. {self._unknown}".strip()
            )
        return Unstorable(
            f"{where} is a {name_of(kind)}, and that class is not named. {self._unnamed}".strip()
        )


def _step(step: Any) -> str:
    """Write a step of a path as JMESPath does.

    A key that is not a name may be a client's data, so it is not shown.
    """
    if isinstance(step, str):
        return f".{step}" if step.isidentifier() else '."…"'
    return f"[{step}]"


# ---------------------------------------------------------------------------- results of a function


class Serializer(NamedTuple):
    """Converts a value to one that can be stored, and back."""

    dump: Callable[[Any], Any]
    load: Callable[[Any], Any]


class _Serialized(NamedTuple):
    """The output of a serializer, tagged so that it is never mistaken for a result without one."""

    value: Any


class FunctionResults:
    """The results of one function. What its annotation names is looked up when first needed, and
    kept.
    """

    def __init__(self, function: Callable[..., Any], serializer: Serializer | None = None) -> None:
        self._function = function
        #: Does project code produce the loaded value?
        self.serialized = serializer is not None
        self._serializer = serializer

    @cached_property
    def dump(self) -> Callable[[Any], bytes]:
        """Return `dump(value)`: a result as bytes. Raises what `Results.dump` raises."""
        return self._results.dump if self._serializer is None else self._dump_serialized

    @cached_property
    def load(self) -> Callable[[bytes], Any]:
        """Return `load(data)`: what dump() was given. Raises what `Results.load` raises."""
        return self._results.load

    @cached_property
    def is_plain(self) -> bool:
        """Does no code of the project take a result apart?"""
        return self._results.is_plain

    def _dump_serialized(self, value: Any) -> bytes:
        assert self._serializer is not None
        if value is not None:  # a serializer is not asked about it
            try:
                value = _Serialized(self._serializer.dump(value))
            except Exception as error:
                if not is_about_value(error, partial(self._serializer.dump, value)):
                    raise
                raise Unstorable(f"The serializer's dump raised {type(error).__name__}.") from error
        return self._results.dump(value)

    @cached_property
    def _results(self) -> Results:
        collector = TypeCollector()
        collector.returned(self._function)
        more: dict[type, Codec] = {}
        if self._serializer is not None:
            more[_Serialized] = Codec("serialized", tuple, self._serializer.load)
        return Results(
            collector.found,
            unnamed="Name it in the function's return annotation, or give serializer=(dump, "
            f"load).{gaps(collector)}",
            unknown="Give serializer=(dump, load), or return plain data.",
            more=more,
        )


def results_for(function: Callable[..., Any], serializer: Any = None) -> FunctionResults:
    """Return how the results of a function are stored.

    Raises `ValueError` for an invalid serializer.

    `serializer` is a pair of callables (dump, load), or an object that has both.
    """
    if serializer is None:
        return FunctionResults(function)
    pair: Any
    if isinstance(serializer, (tuple, list)):
        pair = tuple(serializer)
        if len(pair) != 2 or not all(map(callable, pair)):
            raise ValueError("serializer takes two callables: (dump, load).")
    else:
        pair = getattr(serializer, "dump", None), getattr(serializer, "load", None)
        if isinstance(serializer, ModuleType) or not all(map(callable, pair)):
            raise ValueError(
                "serializer takes (dump, load), such as (json.dumps, json.loads), or an "
                "object with both."
            )
    if any(map(iscoroutinefunction, pair)):
        raise ValueError(
            "serializer takes two sync functions, (dump, load), of an async function, too."
        )
    return FunctionResults(function, Serializer(*pair))


def gaps(collector: TypeCollector) -> str:
    """Say which names of the annotations stand for nothing; "" if all are known."""
    names = ", ".join(sorted(collector.unresolved))
    return (
        names
        and f" Of the annotations, this could not be resolved: {names} (imported for the type "
        "checker only?)."
    )
