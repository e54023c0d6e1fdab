"""The canonical bytes of Python values: two values have the same bytes if, and only if, they mean
the same.

The bytes name keys and are compared by validation, so they must be the same in every process, on
every Python and in every release: tests/core/test_canonical.py spells them out. Anything added here
gets a tag of its own.

The rules
---------

1. A scalar means its type and its value: `1`, `1.0`, `Decimal("1")`, `"1"`, `b"1"` and `True` are
   six meanings.
   - Text counts by code point, without Unicode normalisation; a lone surrogate is text like any
     other.
   - `bytearray` and `memoryview` mean their bytes.
   - A `Decimal` counts by value (`1.0` is `1.00`), a `float` by its shortest repr; zero has no
     sign, NaN is one meaning.
   - An aware `datetime` means its instant, a naive one its wall time. A `time` with a zone means
     its wall time and its offset. A `timedelta` is exact. A path means its text with "/".
2. A subclass means what its base means: `SafeString` is text. An `Enum` member means its value.
3. A list is a tuple, and order counts. A set is a frozenset, and order does not.
4. A mapping means its pairs, in any order, under keys of any type that has a meaning.
5. An object with declared fields (dataclass, attrs, pydantic) means the mapping of them, so a dict
   may become a class and keep its keys. Fields that its own `==` leaves out (`compare=False`,
   attrs' `eq=False`) are left out. A `NamedTuple` is a tuple. A pydantic root model means its root.
6. A row of a Django model means its model and its primary key. A lazy object means the object that
   it loads, a lazy translation its text.
7. Nothing else can be hashed: a function, a socket, a row that is not saved, a value that contains
   itself or is nested deeper than `MAX_DEPTH`, a mapping with two keys that mean the same.
   `UnhashableValue` names the place, and never shows a value.

Every scalar is written as a tag and its text up to ";", or with its length, and every container
between brackets, so the borders between values are unambiguous.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from .encoder import MAX_DEPTH, CanonicalEncoder, TooDeep, UnhashableValue

__all__ = ["TooDeep", "UnhashableValue", "canonical_bytes", "digest", "hasher", "is_missing"]


def canonical_bytes(value: object) -> bytes:
    """Return the canonical bytes of a value.

    Raises `UnhashableValue`. Neither copies nor changes it.
    """
    if type(value) is str:  # most keys are text, or a number
        return f"s{len(value)}:{value}".encode("utf-8", "surrogatepass")
    if type(value) is int:
        return b"i%x;" % value
    encoder = CanonicalEncoder()
    encoder.write(value)
    return "".join(encoder.parts).encode("utf-8", "surrogatepass")


def digest(value: object, algorithm: str = "sha256") -> str:
    """Return the hash of a value's canonical bytes, as hexadecimal digits.

    Raises `UnhashableValue`, and `ValueError` for an unknown algorithm.
    """
    digits: str = hasher(algorithm)(canonical_bytes(value)).hexdigest()
    return digits


@lru_cache(maxsize=32)
def hasher(algorithm: str) -> Callable[[bytes], Any]:
    """Return the constructor of a hash by its name in hashlib.

    Raises `ValueError` if there is none, or its digest has no fixed size of at least 16 bytes.
    """
    if algorithm == "sha256":
        return hashlib.sha256
    made = partial(hashlib.new, algorithm, usedforsecurity=False)
    try:
        size = made(b"").digest_size
    except (TypeError, ValueError):
        size = 0
    if size < 16:
        usable = ", ".join(sorted(hashlib.algorithms_guaranteed - {"shake_128", "shake_256"}))
        raise ValueError(
            f"{algorithm!r} names no hash with a digest of 16 bytes or more. Type one of {usable}."
        )
    return made


def is_missing(value: object, *, parts: bool = True) -> bool:
    """Is a selected key missing, or one of its parts?

    A part is a member of a list, a tuple or a dict.

    Missing are `None`, `""`, `b""`, an empty container, and at any depth a container of nothing
    else; `0`, `0.0` and `False` are keys. Of a value that was not composed of `parts`, one that is
    there is enough.
    """
    if not isinstance(value, _SIZED):
        # A lazy object reports the class of the object that it loads.
        return isinstance(value, _NOTHING)
    if parts and isinstance(value, (list, tuple, dict)) and len(value) > 0:
        return any(map(_is_nothing, value.values() if isinstance(value, dict) else value))
    return _is_nothing(value)


def _is_nothing(value: object, depth: int = 0) -> bool:
    if not isinstance(value, _SIZED):
        return isinstance(value, _NOTHING)
    if isinstance(value, _TEXT) or depth > MAX_DEPTH:  # one that contains itself is refused later
        return len(value) == 0
    return all(
        _is_nothing(part, depth + 1)
        for part in (value.values() if isinstance(value, dict) else value)
    )


_NOTHING = type(None)
_TEXT = (str, bytes, bytearray)
_SIZED = (*_TEXT, list, tuple, dict, set, frozenset)
