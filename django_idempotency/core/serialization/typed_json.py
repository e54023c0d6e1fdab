"""A value as bytes: versioned JSON, read back equal in type and value. No pickle.

    1:{"id":7,"paid":{"$":["Decimal","12.50"]},"state":{"$":["shop.orders.State","PAID"]}}

A value that JSON represents exactly is written as is. Any other is an object with the single name "$": its tag and
its parts (see builtin_types.py and class_types.py). A class of the project is its own tag, and only the classes that
were allowed are ever written or rebuilt. An object that occurs twice comes back as two equal ones.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from .builtin_types import BUILTINS, Codec
from .class_types import codec_of, name_of

#: The version, written before the JSON. Another format has another.
VERSION = b"1:"
TAG = "$"
#: The deepest nesting. Reading a value back needs as much of the stack, wherever that happens.
MAX_DEPTH = 100

_EXACT: frozenset[type] = frozenset({str, bool, type(None)})
#: Includes numbers that JSON has; the encoder refuses the others.
_LIKELY: frozenset[type] = _EXACT | {int, float}
#: Longer integers (bits) are written in hexadecimal: Python may refuse to read them otherwise (CVE-2020-10735).
_LONG = 1024
_NOTHING_MORE: Mapping[type, Codec] = MappingProxyType({})


_encode = json.JSONEncoder(ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":")).encode


class Unstorable(TypeError):
    """This value cannot be stored."""


class Unreadable(ValueError):
    """These bytes were not written by us, or need a class that is not allowed or has changed."""


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
    ) -> None:
        named = {cls: allowed_codec(cls) for cls in classes}
        #: Are they of Python's own types alone, so that no code of the project takes them apart?
        self.is_plain = not named and not more
        tags = Counter(codec.tag for codec in named.values())
        # Two classes of one name cannot be distinguished in the bytes: neither is stored.
        self._codecs = {**BUILTINS, **more, **{cls: codec for cls, codec in named.items() if tags[codec.tag] == 1}}
        self._decoders = {codec.tag: codec.decode for codec in self._codecs.values()}
        self._root = root
        #: What to do about a class that could be allowed, and about any other type.
        self._unnamed, self._unknown = unnamed, unknown
        self._decode = json.JSONDecoder(object_hook=self._build).raw_decode

    def dump(self, value: Any) -> bytes:
        """Return a value as bytes. Raises `Unstorable`, and nothing else."""
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
            raise Unstorable(
                f"The {self._root} cannot be stored: {type(error).__name__} in taking it apart."
            ) from error

    def load(self, data: bytes) -> Any:
        """Return what dump() was given: an equal value, made anew each time. Raises `Unreadable`, and nothing else."""
        if not data.startswith(VERSION):
            raise Unreadable("These bytes were not written by this version.")
        try:
            text = data[len(VERSION) :].decode("utf-8", "surrogatepass")
            value, end = self._decode(text)
        except Unreadable:
            raise
        except Exception as error:
            raise Unreadable(f"A stored {self._root} cannot be read: {type(error).__name__} in building it.") from error
        if end != len(text):
            raise Unreadable(f"A stored {self._root} cannot be read: there is more than one value.")
        return value

    def _tree(self, value: Any, path: tuple[Any, ...], leaves: frozenset[type]) -> Any:
        """Return a value as JSON has it. `leaves` are the types that JSON has."""
        kind = type(value)
        if kind in leaves or (kind is int and value.bit_length() <= _LONG) or (kind is float and math.isfinite(value)):
            return value
        if len(path) > MAX_DEPTH:
            raise Unstorable(f"The {self._root} is nested more than {MAX_DEPTH} deep, or holds itself.")
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
            raise self._refusal(kind, path)
        return {TAG: [codec.tag, *[self._tree(part, path, leaves) for part in codec.encode(value)]]}

    def _object(self, value: dict[Any, Any], path: tuple[Any, ...], leaves: frozenset[type]) -> dict[str, Any] | None:
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
            key: item if type(item) in leaves else self._tree(item, (*path, key), leaves) for key, item in value.items()
        }

    def _build(self, found: dict[str, Any]) -> Any:
        """Return the value that a JSON object represents. The objects inside it are already decoded."""
        if TAG not in found:
            return found
        tag, *parts = found[TAG]
        if tag not in self._decoders:
            raise Unreadable(f"A stored {self._root} holds a {tag}, which is not allowed.")
        return self._decoders[tag](*parts)

    def _refusal(self, kind: type, path: tuple[Any, ...]) -> Unstorable:
        where = self._root + "".join(_step(step) for step in path)
        if codec_of(kind) is None:
            return Unstorable(f"{where} is a {name_of(kind)}, which cannot be stored. {self._unknown}".strip())
        return Unstorable(f"{where} is a {name_of(kind)}, and that class is not named. {self._unnamed}".strip())


def allowed_codec(cls: type) -> Codec:
    """Return how a class is stored. Raises `ValueError` for a class without fields or members."""
    codec = codec_of(cls)
    if codec is None:
        raise ValueError(f"{name_of(cls)} is not a dataclass, attrs, pydantic, Enum or NamedTuple class.")
    return codec


def _step(step: Any) -> str:
    """Write a step of a path as JMESPath does. A key that is not a name may be a client's data, so it is not shown."""
    if isinstance(step, str):
        return f".{step}" if step.isidentifier() else '."…"'
    return f"[{step}]"
