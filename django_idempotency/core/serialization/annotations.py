"""The classes that an annotation reaches: a stored result may be rebuilt only as one of these."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import (
    Annotated,
    Any,
    ClassVar,
    ForwardRef,
    Literal,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from .codecs import codec_of, name_of


class Unknown:
    """Replaces a name that cannot be resolved, so that the rest of its annotation can be."""

    def __class_getitem__(cls, item: object) -> type[Unknown]:
        return cls


class TypeCollector:
    """A walk through annotations. `found` are the classes, `unresolved` the names that stood for
    nothing.
    """

    def __init__(self) -> None:
        self.found: set[type] = set()
        self.unresolved: set[str] = set()
        self._seen: list[Any] = []
        self._names: dict[str, Any] = {}

    def returned(self, function: Callable[..., Any]) -> None:
        """Follow a function's return annotation, also where it is a string.

        Its arguments need not resolve.
        """
        function = _plain(function)
        annotations = getattr(function, "__annotations__", {})
        if "return" in annotations:
            self._follow(function, {"return": annotations["return"]})

    def arguments(self, function: Callable[..., Any]) -> None:
        """Follow the annotations of a function's arguments."""
        function = _plain(function)
        annotations = getattr(function, "__annotations__", {})
        self._follow(
            function, {name: hint for name, hint in annotations.items() if name != "return"}
        )

    def annotation(self, annotation: Any) -> None:
        """Follow one resolved annotation."""
        origin = get_origin(annotation)
        if origin is Literal:
            self.found.update(
                type(member) for member in get_args(annotation) if isinstance(member, Enum)
            )
        elif isinstance(annotation, type) and origin is None:
            self._once(annotation, self.attributes)
        elif (
            type(annotation).__name__ == "TypeAliasType"
        ):  # type X = ..., of typing or typing_extensions
            self._once(annotation, self._alias)
        elif isinstance(annotation, ForwardRef):
            self.unresolved.add(annotation.__forward_arg__)
        else:
            for part in _parts(annotation, origin):
                self.annotation(part)

    def attributes(self, cls: type) -> None:
        """Take a class that can be stored, and follow the annotations of its attributes."""
        if codec_of(cls) is not None:
            self.found.add(cls)
        if issubclass(cls, Enum) or not (
            cls in self.found or issubclass(cls, (dict, BaseException))
        ):
            return
        for base in cls.__mro__:
            for generic in base.__dict__.get("__orig_bases__", ()):
                for part in get_args(generic):
                    self.annotation(part)
        for part in self._attributes(cls):
            self.annotation(part)

    def _attributes(self, cls: Any) -> Iterator[Any]:
        # Pydantic resolves them: at the latest here, if no instance was made yet.
        if hasattr(cls, "model_fields"):
            cls.model_rebuild(raise_errors=False)
            yield from (field.annotation for field in cls.model_fields.values())
            return
        yield from self._hints(cls, vars(cls)).values()
        yield from (field.type for field in getattr(cls, "__attrs_attrs__", ()))

    def _follow(self, function: Any, annotations: dict[str, Any]) -> None:
        self._names = dict(_surroundings(function))
        owner = types.SimpleNamespace(
            __annotations__=annotations, __globals__=getattr(function, "__globals__", {})
        )
        for part in self._hints(owner, {}).values():
            self.annotation(part)

    def _alias(self, alias: Any) -> None:
        try:
            value = alias.__value__
        except NameError as error:
            self.unresolved.add(str(error.name))
        else:
            self.annotation(value)

    def _once(self, what: Any, follow: Callable[[Any], None]) -> None:
        if not any(what is seen for seen in self._seen):
            self._seen.append(what)
            follow(what)

    def _hints(self, owner: Any, inside: Mapping[str, Any]) -> dict[str, Any]:
        """Resolve annotations; an undefined name becomes `Unknown`."""
        known: dict[str, Any] = {}
        while True:
            try:
                return get_type_hints(owner, localns=known or None, include_extras=True)
            except NameError as error:
                if error.name is None or error.name in known:
                    return {}
                known[error.name] = inside.get(error.name, self._names.get(error.name, Unknown))
                if known[error.name] is Unknown:
                    self.unresolved.add(error.name)
            except Exception:  # noqa: BLE001 - an annotation may be any expression, and this one cannot be evaluated
                self.unresolved.add(
                    name_of(owner) if isinstance(owner, type) else str(owner.__annotations__)
                )
                return {}


def _parts(annotation: Any, origin: Any) -> tuple[Any, ...]:
    """Return the parts of an annotation that is not a class."""
    if origin is Annotated:
        return (annotation.__origin__,)
    if origin is not None and origin is not ClassVar:
        return (origin, *get_args(annotation))
    if isinstance(annotation, TypeVar):
        return (
            annotation.__bound__,
            *annotation.__constraints__,
            getattr(annotation, "__default__", None),
        )
    return (annotation.__supertype__,) if hasattr(annotation, "__supertype__") else ()  # NewType


def _plain(function: Any) -> Any:
    """Return the function under wrappers, partials, methods and callable objects."""
    while True:
        function = inspect.unwrap(getattr(function, "__func__", function))
        if isinstance(function, functools.partial):
            function = function.func
        elif hasattr(function, "__code__") or not hasattr(type(function).__call__, "__code__"):
            return function
        else:
            function = type(function).__call__


def _surroundings(function: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a string annotation may name beside globals: type parameters, and what the
    function closes over.
    """
    for parameter in getattr(function, "__type_params__", ()):
        yield parameter.__name__, parameter
    cells = getattr(function, "__closure__", None) or ()
    for name, cell in zip(function.__code__.co_freevars if cells else (), cells, strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue
