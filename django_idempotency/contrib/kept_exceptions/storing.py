"""An exception as bytes and back.

Usually it is stored by its class, its args and its attributes, and rebuilt without calling its
`__init__`. If that cannot be, because an attribute cannot be stored or its class is not Python's,
it is stored by what makes it: its own reduction, as `pickle` and `copy` use it, or its constructor
with the attributes that have the names of the parameters. What makes it is called when it is
stored, to see that the same comes back, and when it is raised again. It is always the kept class,
or a class method of it: no name in the bytes is ever imported.
"""

from __future__ import annotations

import builtins
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any, NamedTuple

from django.utils.functional import Promise

from ...core.serialization.annotations import TypeCollector
from ...core.serialization.codecs import (
    Codec,
    Field,
    fields_of,
    name_of,
    restore,
    slots_of,
    state_of,
)
from ...core.serialization.results import Results, Unreadable, Unstorable, gaps

#: What a class may raise about a value, when it is taken apart or made.
ABOUT_VALUES = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)
#: REST framework's base of exceptions; beside it is its `ErrorDetail`, text with a code.
_OF_REST = "rest_framework.exceptions.APIException"


class _Maker(NamedTuple):
    """What makes an exception: the class method of this name, or "" for the class itself, and its
    arguments.
    """

    method: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


class _Raised(NamedTuple):
    """An exception, the class that it is stored as, and what makes it (`None`: its class, args and
    attributes).
    """

    cls: type[Exception]
    error: BaseException
    maker: _Maker | None = None


def dump_error(error: BaseException, kept: Sequence[type[Exception]]) -> bytes:
    """Return an exception as bytes: as the nearest class of its MRO that is kept, with args and
    attributes.

    Subclasses of `str`, `list` and `dict` and lazy translations come back as text, lists and dicts.
    Raises `Unstorable`, also if its text would not be the same. Cause, context and traceback are
    not stored.
    """
    cls = next((cls for cls in type(error).__mro__ if cls in kept), None)
    if cls is None:
        raise Unstorable(f"{name_of(type(error))} is not among the exceptions to keep.")
    try:
        return _dumped(_Raised(cls, error), kept)
    except Unstorable as unstorable:
        refused = unstorable
    for maker in _makers(cls, error):
        try:
            return _dumped(_Raised(cls, error, maker), kept)
        except Unstorable:
            continue
    raise refused


def _dumped(raised: _Raised, kept: Sequence[type[Exception]]) -> bytes:
    """Return an exception as bytes, if the same comes back. Raises `Unstorable` otherwise."""
    cls = raised.cls
    data = _errors(tuple(kept)).dump(raised)
    try:
        back = load_error(data, kept)
        same = str(back) == str(raised.error)
        if raised.maker is not None:
            same = same and vars(back).keys() == vars(raised.error).keys()
    except (Unreadable, *ABOUT_VALUES) as failure:
        raise Unstorable(
            f"{name_of(cls)} cannot be rebuilt from its args and attributes."
        ) from failure
    if not same:
        name = name_of(type(raised.error))
        raise Unstorable(
            f"{name} would read differently, rebuilt as {name_of(cls)} without __init__."
        )
    return data


def load_error(data: bytes, kept: Sequence[type[Exception]]) -> Exception:
    """Return what dump_error() was given. Raises `Unreadable`, and nothing else."""
    error = _errors(tuple(kept)).load(data)
    if not isinstance(error, Exception):
        raise Unreadable("The stored value is not an exception.")
    return error


@lru_cache(maxsize=256)
def _errors(kept: tuple[type[Exception], ...]) -> Results:
    """Return how these exceptions are stored.

    The annotations of their attributes say which classes may be in them.
    """
    collector = TypeCollector()
    for cls in kept:
        collector.attributes(cls)
        collector.arguments(cls.__init__)
    classes = {name_of(cls): cls for cls in kept}
    codecs = {name: _codec(cls) for name, cls in classes.items()}

    def encode(raised: _Raised) -> tuple[Any, ...]:
        name = name_of(raised.cls)
        if raised.maker is None:
            return (name, *codecs[name].encode(raised.error))
        method, args, kwargs = raised.maker
        return (name, {}, method, list(args), dict(kwargs))

    def decode(
        name: str,
        state: dict[str, Any],
        method: str | None = None,
        args: Sequence[Any] = (),
        kwargs: Any = None,
    ) -> Any:
        if method is None:
            return codecs[name].decode(state)
        return _maker_of(classes[name], method)(*args, **(kwargs or {}))

    return Results(
        collector.found,
        root="error",
        unnamed="Annotate the attribute of the exception, or the argument of its __init__, with "
        f"it.{gaps(collector)}",
        unknown="An exception is kept with its args and attributes: have plain data in them.",
        more={_Raised: Codec("error", encode, decode), **_BUILT_IN, **_details(kept)},
        plain=_plain,
    )


# ------------------------------------------------------------------------------------ what makes it


def _makers(cls: type[Exception], error: BaseException) -> Iterator[_Maker]:
    """Yield what may make an exception again: what its own reduction says, then its constructor
    with its attributes.
    """
    try:
        reduced = error.__reduce_ex__(4)
    except ABOUT_VALUES:
        reduced = ""
    if isinstance(reduced, tuple):
        makes = reduced[0]
        if makes is cls:
            yield _Maker("", reduced[1], {})
        elif getattr(makes, "__self__", None) is cls:
            yield _Maker(makes.__name__, reduced[1], {})
    try:
        parameters = inspect.signature(cls).parameters.values()
    except ABOUT_VALUES:  # it has none that Python knows
        return
    given: dict[str, Any] = {}
    for parameter in parameters:
        for name in (parameter.name, f"_{parameter.name}"):
            if name in vars(error):
                given[parameter.name] = vars(error)[name]
                break
    yield _Maker("", (), given)


def _maker_of(cls: type[Exception], method: str) -> Any:
    """Return a class, or its class method of a name. Raises `Unreadable` for anything else."""
    if not method:
        return cls
    made = getattr(cls, method, None)
    if method.startswith("__") or getattr(made, "__self__", None) is not cls:
        raise Unreadable(f"{name_of(cls)} has no class method {method}().")
    return made


# ----------------------------------------------------------------------------- what is inside of it


def _plain(value: Any) -> Any:
    """Return the text, list or dict that a value is, whatever it can do beside; the value itself if
    it is none.
    """
    # A translation that is looked up when it is shown: this is its language.
    if isinstance(value, Promise):
        text = str(value)
        return str.__str__(text)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, dict):
        return dict(dict.items(value))
    if isinstance(value, list):
        return list(list.__iter__(value))
    return value


def _details(kept: Sequence[type[Exception]]) -> dict[type, Codec]:
    """Return how the texts with a code are stored that exceptions of REST framework hold, if one of
    them is kept.
    """
    for cls in kept:
        for base in cls.__mro__:
            if name_of(base) == _OF_REST:
                detail = sys.modules[base.__module__].ErrorDetail
                return {
                    detail: Codec(
                        name_of(detail), lambda text: (str.__str__(text), text.code), detail
                    )
                }
    return {}


def _codec(cls: type[BaseException]) -> Codec:
    """Return the codec of an exception class: its args, its fields if it has some, and its
    attributes.
    """
    fields = (*fields_of(cls), *(Field(name, None, required=False) for name in slots_of(cls)))
    built_in = tuple(Field(name, None, required=False) for name in _built_in(cls))

    def encode(error: BaseException) -> tuple[dict[str, Any]]:
        # What its args alone would not restore, such as the `name` of an ImportError.
        bare = cls.__new__(cls, *error.args) if built_in else error
        given = {
            name: found
            for name, _, _ in built_in
            if (found := _found(error, name)) != _found(bare, name)
        }
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
    """Return the fields of Python's own exception classes, except the object in which a name was
    not found.
    """
    owners = (
        base
        for base in cls.__mro__
        if base.__module__ == "builtins" and base not in (BaseException, object)
    )
    kinds = (MemberDescriptorType, GetSetDescriptorType)
    return [
        name
        for base in owners
        for name, field in vars(base).items()
        if isinstance(field, kinds) and name != "obj"
    ]


def _found(error: BaseException, name: str) -> Any:
    try:
        return getattr(error, name)
    except (AttributeError, TypeError):  # not set
        return None


#: Exceptions of Python's own inside of one that is kept: such as the reason in a `ValidationError`
#: of pydantic.
_BUILT_IN: dict[type, Codec] = {
    cls: _codec(cls)
    for cls in (
        each
        for each in vars(builtins).values()
        if isinstance(each, type) and issubclass(each, Exception)
    )
    if cls.__name__ != "ExceptionGroup"
}
