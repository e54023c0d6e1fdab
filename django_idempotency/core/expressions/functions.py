"""JMESPath's functions over Python's types, and functions that decode what is packed inside a
payload.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import io
import json
import math
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from decimal import Context, Decimal, Inexact, localcontext
from typing import Any

import jmespath.functions
from jmespath.exceptions import JMESPathTypeError
from jmespath.functions import TYPES_MAP, signature

from ..records import INFLATE_LIMIT

#: The same limit as Python's for integers in text (CVE-2020-10735).
_MOST_DIGITS = 4300


class Unpackable(ValueError):
    """A function cannot decode the text that it is given."""


#: JMESPath's name of a type → Python's types.
_TYPES: dict[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (Mapping,),
    "null": (type(None),),
    "string": (str,),
    "number": (int, float, Decimal),
}


def type_name(value: object) -> str:
    """Return JMESPath's name for a value's type; "object" for anything that has fields."""
    if isinstance(value, bool):
        return "boolean"
    if type(value).__name__ == "_Expression":
        return "expref"
    return next((name for name, kinds in _TYPES.items() if isinstance(value, kinds)), "unknown")


class Functions(jmespath.functions.Functions):
    """The functions of every expression. Subclass it, or JMESPath's own, to add more:
    `_func_<name>`, `@signature`.

    Numbers keep their digits: `Decimal` is a number, and text with a fraction becomes one.
    """

    @signature({"types": ["string", "null"]})
    def _func_from_json(self, text: str | None) -> Any:
        return None if text is None else from_json(text)

    @signature({"types": ["string", "null"]})
    def _func_from_base64(self, text: str | None) -> str | None:
        return None if text is None else _text(_base64(text), "from_base64")

    @signature({"types": ["string", "null"]})
    def _func_from_base64_gzip(self, text: str | None) -> str | None:
        return None if text is None else _text(_gunzipped(_base64(text)), "from_base64_gzip")

    # The names that AWS Powertools gave them.
    _func_powertools_json = _func_from_json
    _func_powertools_base64 = _func_from_base64
    _func_powertools_base64_gzip = _func_from_base64_gzip

    # ------------------------------------------------ JMESPath's own, where they know too few types

    @signature({"types": []})
    def _func_to_string(self, value: Any) -> str:
        return value if isinstance(value, str) else _json(value)

    @signature({"types": []})
    def _func_to_number(self, value: Any) -> Any:
        if isinstance(value, str):
            try:
                return int(value)
            except ValueError:
                return _decimal(value)
        return value if type_name(value) == "number" else None

    @signature({"types": ["number"]})
    def _func_abs(self, value: Any) -> Any:
        return value.copy_abs() if isinstance(value, Decimal) else abs(value)  # abs() rounds

    @signature({"types": ["array-number"]})
    def _func_sum(self, values: Any) -> Any:
        return _sum(values, "sum")

    @signature({"types": ["array-number"]})
    def _func_avg(self, values: Any) -> Any:
        return _sum(values, "avg") / len(values) if values else None

    @signature({"types": ["number"]})
    def _func_ceil(self, value: Any) -> int:
        return math.ceil(_of_fair_size(value, "ceil"))

    @signature({"types": ["number"]})
    def _func_floor(self, value: Any) -> int:
        return math.floor(_of_fair_size(value, "floor"))

    @signature({"types": []})
    def _func_type(self, value: Any) -> str:
        return type_name(value)

    @signature({"types": []})
    def _func_to_array(self, value: Any) -> Any:
        return value if isinstance(value, (list, tuple)) else [value]

    def _type_check_single(self, current: Any, types: list[str], function_name: str) -> None:
        """See jmespath: a type may be "array-number", an array of nothing else."""
        actual = type_name(current)
        if (
            isinstance(current, bytes)
            and function_name.removeprefix("powertools_").removeprefix("from_") in _UNPACKING
        ):
            return  # a message's body
        if actual not in {name.partition("-")[0] for name in types}:
            raise JMESPathTypeError(function_name, type(current).__name__, actual, types)
        inner = [name.partition("-")[2] for name in types if name.startswith("array-")]
        if (
            inner
            and current
            and not any(all(type_name(item) == kind for item in current) for kind in inner)
        ):
            raise JMESPathTypeError(function_name, "its members", "array", types)

    def _convert_to_jmespath_type(self, pyobject: str) -> str:
        return "number" if pyobject == "Decimal" else TYPES_MAP.get(pyobject, "unknown")


_UNPACKING = frozenset({"json", "base64", "base64_gzip"})


def with_ours(functions: Any) -> Functions:
    """Return a project's functions together with ours. If both have a name, the project's is used.

    Raises `TypeError` for anything that is neither a subclass of jmespath's `Functions` nor an
    instance of one.
    """
    if functions is None:
        return _OURS
    given = functions
    if isinstance(functions, type) and issubclass(functions, jmespath.functions.Functions):
        functions = functions()
    if not isinstance(functions, jmespath.functions.Functions):
        raise TypeError(
            "JMESPath functions are a subclass of "
            f"django_idempotency.core.expressions.Functions, not {given!r}."
        )
    if isinstance(functions, Functions):
        return functions
    theirs = type(functions)
    both: type[Functions] = type(theirs.__name__, (theirs, Functions), {})
    combined = object.__new__(both)
    combined.__dict__ = functions.__dict__
    return combined


_OURS = Functions()


# ---------------------------------------------------------------------------------------- unpacking


def from_json(text: str | bytes) -> Any:
    """Parse JSON; a number with a fraction becomes a `Decimal`, since as floats distinct amounts
    would merge.

    Raises `Unpackable`.
    """
    try:
        return _JSON(text if isinstance(text, str) else text.decode())
    except (ValueError, ArithmeticError, RecursionError):
        raise Unpackable("from_json() got what is not JSON.") from None


def _json(value: Any) -> str:
    """Write JSON in which a `Decimal` is a number, with an object's names in order."""
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, Mapping):
        pairs = sorted((json.dumps(str(name)), _json(item)) for name, item in value.items())
        return "{" + ",".join(f"{name}:{item}" for name, item in pairs) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(_json, value)) + "]"
    return json.dumps(value, default=_said)


def _said(value: Any) -> str:
    """Return a value as text.

    The repr of a set or of an object would differ in the next process.
    """
    kind: Any = type(value)
    if kind.__str__ is object.__str__:
        raise Unpackable(f"to_string() takes a value that has a text, not {kind.__name__}.")
    return str(value)


def _refuse(name: str) -> Any:
    raise ValueError(name)


_JSON: Callable[[str], Any] = json.JSONDecoder(parse_float=Decimal, parse_constant=_refuse).decode


def _decimal(text: str) -> Decimal | None:
    try:
        number = Decimal(text)
    except ArithmeticError:
        return None
    return number if number.is_finite() else None


def _of_fair_size(number: float | Decimal, function: str) -> float | Decimal:
    """Return a number that can be converted to `int`: 1e9999999, ten bytes of a client's JSON,
    would take hours.
    """
    if isinstance(number, Decimal) and number.adjusted() > _MOST_DIGITS:
        raise Unpackable(f"{function}() takes numbers of {_MOST_DIGITS} digits at most.")
    return number


def _sum(numbers: Iterable[Any], function: str) -> Any:
    """Add without rounding: Python's `Decimal` keeps 28 digits, and sums that differ beyond that
    would be one key.
    """
    try:
        with localcontext(_EXACT):
            return sum(numbers)
    except Inexact:
        raise Unpackable(f"{function}() takes numbers of {_MOST_DIGITS} digits at most.") from None


_EXACT = Context(prec=_MOST_DIGITS, traps=[Inexact])


def _base64(text: str | bytes) -> bytes:
    try:
        joined = b"".join((text.encode("ascii") if isinstance(text, str) else text).split())
        return base64.b64decode(joined, validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise Unpackable("from_base64() got text that is not base64.") from None


#: The bytes that one selection may still inflate: a projection inflates each of its elements.
_INFLATABLE: ContextVar[int] = ContextVar("django_idempotency_inflatable", default=INFLATE_LIMIT)


def inflates(function: str) -> bool:
    """Does this function return more bytes than it is given?"""
    return function.endswith("_base64_gzip")


def inflating_once(find: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Share one limit among everything that one selection inflates."""

    def bounded(payload: Any) -> Any:
        token = _INFLATABLE.set(INFLATE_LIMIT)
        try:
            return find(payload)
        finally:
            _INFLATABLE.reset(token)

    return bounded


def _gunzipped(packed: bytes) -> bytes:
    limit = _INFLATABLE.get()
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as opened:
            content = opened.read(limit + 1)
    except (OSError, EOFError, zlib.error):
        raise Unpackable("from_base64_gzip() got bytes that gzip did not compress.") from None
    if len(content) > limit:
        raise Unpackable(
            f"from_base64_gzip() inflates {INFLATE_LIMIT // 1024**2} MiB at most, in one selection."
        )
    _INFLATABLE.set(limit - len(content))
    return content


def _text(content: bytes, function: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise Unpackable(f"{function}() found bytes that are not UTF-8 text.") from None
