"""A function's result or exception as bytes and back: equal on the replay, in type and value.

The function's return annotation decides which classes it may contain; for an exception, its own annotations do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property, lru_cache
from inspect import iscoroutinefunction
from types import ModuleType
from typing import Any, NamedTuple, Protocol

from .annotations import TypeCollector, classes_in
from .builtin_types import Codec
from .class_types import error_codec, name_of
from .typed_json import Results, Unreadable, Unstorable, allowed_codec

__all__ = [
    "FunctionResults",
    "Results",
    "Serializer",
    "Unreadable",
    "Unstorable",
    "classes_in",
    "dump_error",
    "load_error",
    "results_for",
]


class Serializer(Protocol):
    """Converts a value to one that can be stored, and back."""

    @property
    def dump(self) -> Callable[[Any], Any]: ...
    @property
    def load(self) -> Callable[[Any], Any]: ...


class _Pair(NamedTuple):
    dump: Callable[[Any], Any]
    load: Callable[[Any], Any]


class _Serialized(NamedTuple):
    """The output of a serializer, tagged so that it is never mistaken for a result without one."""

    value: Any


class FunctionResults:
    """The results of one function. What its annotation names is looked up when first needed, and kept."""

    def __init__(
        self, function: Callable[..., Any], serializer: Serializer | None = None, classes: Collection[type] = ()
    ) -> None:
        self._function = function
        #: Does project code produce the loaded value?
        self.serialized = serializer is not None
        self._serializer = serializer
        self._classes = classes

    @cached_property
    def dump(self) -> Callable[[Any], bytes]:
        """Return `dump(value)`: a result as bytes. Raises `Unstorable`, and nothing else."""
        return self._results.dump if self._serializer is None else self._dump_serialized

    @cached_property
    def load(self) -> Callable[[bytes], Any]:
        """Return `load(data)`: what dump() was given. Raises `Unreadable`, and nothing else."""
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
            collector.found.union(self._classes),
            unnamed=f"Name it in the function's return annotation, or give serializer=(dump, load).{_gaps(collector)}",
            unknown="Give serializer=(dump, load), or return plain data.",
            more=more,
        )


def results_for(
    function: Callable[..., Any],
    serializer: Serializer | Sequence[Callable[[Any], Any]] | None = None,
    classes: Collection[type] = (),
) -> FunctionResults:
    """Return how the results of a function are stored. Raises `ValueError` for an invalid serializer or class.

    `serializer` is a pair of callables (dump, load), or an object that has both; `classes` may be returned in
    addition to those that the return annotation names.
    """
    for cls in classes:
        allowed_codec(cls)
    pair: tuple[Any, ...] = ()
    if isinstance(serializer, (tuple, list)):
        pair = tuple(serializer)
        if len(pair) != 2 or not all(map(callable, pair)):
            raise ValueError("serializer takes two callables: (dump, load).")
        serializer = _Pair(*pair)
    elif serializer is not None:
        pair = getattr(serializer, "dump", None), getattr(serializer, "load", None)
        if isinstance(serializer, ModuleType) or not all(map(callable, pair)):
            raise ValueError("serializer takes (dump, load), such as (json.dumps, json.loads), or an object with both.")
    if any(map(iscoroutinefunction, pair)):
        raise ValueError("serializer takes two sync functions, (dump, load), of an async function, too.")
    return FunctionResults(function, serializer, tuple(classes))  # type: ignore[arg-type]


def _gaps(collector: TypeCollector) -> str:
    names = ", ".join(sorted(collector.unresolved))
    return names and f" Of the annotations, this could not be resolved: {names} (imported for the type checker only?)."


# ---------------------------------------------------------------------------------------------------------- exceptions


class _Raised(NamedTuple):
    """An exception, and the class that it is stored as."""

    cls: type[Exception]
    error: BaseException


def dump_error(error: BaseException, kept: Sequence[type[Exception]]) -> bytes:
    """Return an exception as bytes: as the nearest class of its MRO that is kept, with args and attributes.

    Raises `Unstorable`, also if its text would not be the same. Cause, context and traceback are not stored.
    """
    cls = next((cls for cls in type(error).__mro__ if cls in kept), None)
    if cls is None:
        raise Unstorable(f"{name_of(type(error))} is not among the exceptions to keep.")
    data = _errors(tuple(kept)).dump(_Raised(cls, error))
    try:
        same = str(load_error(data, kept)) == str(error)
    except Exception as failure:
        raise Unstorable(f"{name_of(cls)} cannot be rebuilt from its args and attributes.") from failure
    if not same:
        raise Unstorable(f"{name_of(type(error))} would read differently, rebuilt as {name_of(cls)} without __init__.")
    return data


def load_error(data: bytes, kept: Sequence[type[Exception]]) -> Exception:
    """Return what dump_error() was given, made without its `__init__`. Raises `Unreadable`, and nothing else."""
    error = _errors(tuple(kept)).load(data)
    if not isinstance(error, Exception):
        raise Unreadable("The stored value is not an exception.")
    return error


@lru_cache(maxsize=256)
def _errors(kept: tuple[type[Exception], ...]) -> Results:
    """Return how these exceptions are stored. The annotations of their attributes say which classes may be in them."""
    collector = TypeCollector()
    for cls in kept:
        collector.attributes(cls)
        collector.arguments(cls.__init__)
    codecs = {cls: error_codec(cls) for cls in kept}
    named = {codec.tag: codec for codec in codecs.values()}
    raised = Codec(
        "error",
        lambda raised: (codecs[raised.cls].tag, *codecs[raised.cls].encode(raised.error)),
        lambda name, state: named[name].decode(state),
    )
    return Results(
        collector.found,
        root="error",
        unnamed=f"Annotate the attribute of the exception, or the argument of its __init__, with it.{_gaps(collector)}",
        unknown="An exception is kept with its args and attributes: have plain data in them.",
        more={_Raised: raised},
    )
