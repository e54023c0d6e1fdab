"""An exception as bytes and back: by its class, its args and its attributes, without calling its `__init__`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any, NamedTuple

from ...core.serialization.annotations import TypeCollector
from ...core.serialization.codecs import Codec, Field, fields_of, name_of, restore, slots_of, state_of
from ...core.serialization.results import Results, Unreadable, Unstorable, gaps


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
    codecs = {cls: _codec(cls) for cls in kept}
    named = {codec.tag: codec for codec in codecs.values()}
    raised = Codec(
        "error",
        lambda raised: (codecs[raised.cls].tag, *codecs[raised.cls].encode(raised.error)),
        lambda name, state: named[name].decode(state),
    )
    return Results(
        collector.found,
        root="error",
        unnamed=f"Annotate the attribute of the exception, or the argument of its __init__, with it.{gaps(collector)}",
        unknown="An exception is kept with its args and attributes: have plain data in them.",
        more={_Raised: raised},
    )


def _codec(cls: type[BaseException]) -> Codec:
    """Return the codec of an exception class: its args, its fields if it has some, and its attributes."""
    fields = (*fields_of(cls), *(Field(name, None, required=False) for name in slots_of(cls)))
    built_in = tuple(Field(name, None, required=False) for name in _built_in(cls))

    def encode(error: BaseException) -> tuple[dict[str, Any]]:
        # What its args alone would not restore, such as the `name` of an ImportError.
        bare = cls.__new__(cls, *error.args) if built_in else error
        given = {name: found for name, _, _ in built_in if (found := _found(error, name)) != _found(bare, name)}
        # "args" is a descriptor of BaseException: no attribute has its name.
        return ({**state_of(cls, fields, error), **given, "args": list(error.args)},)

    def decode(state: dict[str, Any]) -> BaseException:
        args = state.pop("args")
        error = cls.__new__(cls, *args)
        object.__setattr__(error, "args", tuple(args))  # frozen, too
        restore(error, (*fields, *built_in), state)
        return error

    return Codec(name_of(cls), encode, decode)


def _built_in(cls: type[BaseException]) -> list[str]:
    """Return the fields of Python's own exception classes, except the object in which a name was not found."""
    owners = (base for base in cls.__mro__ if base.__module__ == "builtins" and base not in (BaseException, object))
    kinds = (MemberDescriptorType, GetSetDescriptorType)
    return [name for base in owners for name, field in vars(base).items() if isinstance(field, kinds) and name != "obj"]


def _found(error: BaseException, name: str) -> Any:
    try:
        return getattr(error, name)
    except (AttributeError, TypeError):  # not set
        return None
