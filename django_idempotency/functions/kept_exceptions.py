"""An exception as bytes and back, for `keep_exceptions`, `UndoOn` and what steps keep.

Usually it is stored by its class, its args and its attributes, and rebuilt without calling its
`__init__`. If that cannot be, because an attribute cannot be stored or its class is not Python's,
it is stored by what makes it: its own reduction, as `pickle` and `copy` use it, or its constructor
with the attributes that have the names of the parameters. What makes it is called when it is
stored, to see that the same comes back, and when it is raised again. It is always the kept class,
or a class method of it: no name in the bytes is ever imported.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from inspect import signature
from typing import Any, NamedTuple, TypeAlias

from django.utils.functional import Promise

from ..core.serialization.annotations import TypeCollector
from ..core.serialization.codecs import (
    Codec,
    State,
    fields_of,
    name_of,
    names_of,
    restore,
    slots_of,
    state_of,
    with_defaults,
)
from ..core.serialization.results import ABOUT_VALUES, Results, Unreadable, Unstorable

Kept: TypeAlias = Sequence[type[Exception]]
#: The object in which a name was not found may be anything, and there is no context.
_NOT_KEPT = ("obj", "__suppress_context__")


class _Raised(NamedTuple):
    """An exception that is being stored. Its parts are the name of its class and its state; or the
    name, an empty state, the class method that makes it ("": the class itself), and the arguments.
    """

    parts: Callable[[], Sequence[object]]


def dump_error(error: BaseException, kept: Kept) -> bytes:
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
        return _dumped(cls, error, kept)
    except Unstorable as unstorable:
        refused = unstorable
    for maker in _makers(cls, error):
        with suppress(Unstorable):
            return _dumped(cls, error, kept, *maker)
    raise refused


def _dumped(cls: type[Exception], error: BaseException, kept: Kept, *maker: object) -> bytes:
    """Return an exception as bytes, if the same comes back. Raises `Unstorable` otherwise."""
    data = _results(tuple(kept)).dump(
        _Raised(lambda: [name_of(cls), {} if maker else _state(cls, error), *maker])
    )
    try:
        back = load_error(data, kept)
        same = str(back) == str(error) and (not maker or vars(back).keys() == vars(error).keys())
    except (Unreadable, *ABOUT_VALUES) as failure:
        raise Unstorable(
            f"{name_of(cls)} cannot be rebuilt from its args and attributes."
        ) from failure
    if not same:
        raise Unstorable(
            f"{name_of(type(error))} would read differently, rebuilt as {name_of(cls)} without "
            "__init__."
        )
    return data


def load_error(data: bytes, kept: Kept) -> Exception:
    """Return what dump_error() was given. Raises `Unreadable`, and nothing else."""
    error = _results(tuple(kept)).load(data)
    if not isinstance(error, Exception):
        raise Unreadable("The stored value is not an exception.")
    return error


@lru_cache(maxsize=256)
def _results(kept: tuple[type[Exception], ...]) -> Results:
    """Return how these exceptions are stored.

    The annotations of their attributes say which classes may be in them.
    """
    classes = {name_of(cls): cls for cls in kept}

    def follow(named: TypeCollector) -> None:
        for cls in kept:
            named.attributes(cls)
            named.follow(cls.__init__, returned=False)

    return Results(
        follow,
        root="error",
        unnamed="Annotate the attribute of the exception, or the argument of __init__, with it.",
        unknown="An exception is kept with its args and attributes: have plain data in them.",
        more={
            _Raised: Codec(
                "error",
                lambda raised: raised.parts(),
                partial(_made, classes),
            ),
            **_BUILT_IN,
            **_details(kept),
        },
        plain=_plain,
    )


# -------------------------------------------------------------------------------- how it is rebuilt


def _makers(cls: type[Exception], error: BaseException) -> Iterator[list[object]]:
    """Yield what may make an exception again: what its own reduction says, then its constructor
    with its attributes.
    """
    with suppress(*ABOUT_VALUES):
        reduced: Any = error.__reduce_ex__(4)
        make, args, *_ = reduced
        if make is cls or getattr(make, "__self__", None) is cls:
            yield ["" if make is cls else make.__name__, list(args), {}]
    with suppress(*ABOUT_VALUES):  # it has no parameters that Python knows
        given = vars(error)
        found = {name.removeprefix("_"): item for name, item in given.items()} | given
        parameters = signature(cls).parameters
        yield ["", [], {name: found[name] for name in parameters if name in found}]


def _made(classes: Mapping[str, type[Exception]], name: str, state: Any, *maker: Any) -> object:
    """Return an exception of its parts. Raises `Unreadable` for what its class does not have."""
    cls = classes[name]
    if not maker:
        return _rebuilt(cls, state)
    method, args, kwargs = maker
    make = getattr(cls, method) if method else cls
    if method.startswith("__") or cls not in (make, getattr(make, "__self__", None)):
        raise Unreadable(f"{name} has no class method {method}().")
    return make(*args, **kwargs)


def _state(cls: type[BaseException], error: BaseException) -> State:
    """Return the args of an exception, and its attributes."""
    state = state_of(error, names_of(cls))
    for name in slots_of(cls, built_in=True):
        found = getattr(error, name, None)
        # What its args alone would not restore, such as the `name` of an ImportError.
        if name not in _NOT_KEPT and found != getattr(cls.__new__(cls, *error.args), name, None):
            state[name] = found
    # "args" is a descriptor of BaseException: no attribute has its name.
    return {**state, "args": list(error.args)}


def _rebuilt(cls: type[BaseException], state: Any) -> BaseException:
    args = state.pop("args")
    error = cls.__new__(cls, *args)
    object.__setattr__(error, "args", tuple(args))  # frozen, too
    restore(error, with_defaults(state, fields_of(cls)))
    return error


# ----------------------------------------------------------------------------- what is inside of it


def _plain(value: Any) -> object:
    """Return the text, list or dict that a value is, whatever it can do beside; the value itself if
    it is none.
    """
    # A translation that is looked up when it is shown: this is its language.
    if isinstance(value, Promise):
        value = str(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, dict):
        return dict.copy(value)
    if isinstance(value, list):
        return list.copy(value)
    return value


def _details(kept: Kept) -> dict[type, Codec]:
    """Return the row of the texts with a code that exceptions of REST framework hold, if one of
    them is kept.
    """
    rest = sys.modules.get("rest_framework.exceptions")
    if rest is None or not any(issubclass(cls, rest.APIException) for cls in kept):
        return {}
    detail = rest.ErrorDetail
    return {detail: Codec(name_of(detail), lambda text: [str.__str__(text), text.code], detail)}


#: Exceptions of Python's own inside of one that is kept: such as the reason in a `ValidationError`
#: of pydantic.
_BUILT_IN = {
    cls: Codec(name_of(cls), lambda error: [_state(type(error), error)], partial(_rebuilt, cls))
    for cls in vars(builtins).values()
    if isinstance(cls, type) and issubclass(cls, Exception) and cls.__name__ != "ExceptionGroup"
}
