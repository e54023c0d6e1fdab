"""The classes that an annotation reaches: a stored result may be rebuilt only as one of these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from inspect import unwrap
from types import SimpleNamespace
from typing import (
    Annotated,
    Any,
    Literal,
    get_args,
    get_origin,
    get_type_hints,
)

from .codecs import Codec, codec_of


class TypeCollector:
    """A walk through annotations. `found` are the classes and their rows, `unresolved` the names
    that stood for nothing.
    """

    def __init__(self) -> None:
        self.found: dict[type, Codec] = {}
        self.unresolved: set[str] = set()
        self._seen: list[object] = []

    @property
    def gaps(self) -> str:
        """Say which names stood for nothing; "" if all are known."""
        names = ", ".join(sorted(self.unresolved))
        return names and (
            f" Of the annotations, this could not be resolved: {names} (imported for the type "
            "checker only?)."
        )

    def follow(self, function: Callable[..., object], *, returned: bool) -> None:
        """Follow a function's return annotation, or those of its arguments.

        They may be strings, and the others need not resolve.
        """
        function = _plain(function)
        owner = SimpleNamespace(
            __annotations__={
                name: annotation
                for name, annotation in getattr(function, "__annotations__", {}).items()
                if (name == "return") is returned
            },
            __globals__=getattr(function, "__globals__", {}),
        )
        for part in self._hints(owner):
            self.annotation(part)

    def annotation(self, annotation: object) -> None:
        """Follow one resolved annotation."""
        if any(annotation is seen for seen in self._seen):
            return
        self._seen.append(annotation)
        if isinstance(annotation, type) and get_origin(annotation) is None:
            self.attributes(annotation)
            return
        try:
            parts = _parts(annotation)
        except NameError as error:  # of a `type X = ...`
            self.unresolved.add(str(error.name))
        else:
            for part in parts:
                self.annotation(part)

    def attributes(self, cls: Any) -> None:
        """Take a class that can be stored, and follow the annotations of its attributes."""
        codec = codec_of(cls)
        if codec is not None:
            self.found[cls] = codec
        elif not issubclass(cls, (dict, BaseException)):
            return
        if hasattr(cls, "model_rebuild"):
            # Pydantic resolves them: at the latest here, if no instance was made yet.
            cls.model_rebuild(raise_errors=False)
        fields = getattr(cls, "model_fields", {}).values()
        for part in [field.annotation for field in fields] or self._hints(cls):
            self.annotation(part)

    def _hints(self, owner: object) -> Iterable[object]:
        """Resolve annotations. A tuple stands for a name that is undefined: it names no class."""
        unknown: dict[str, object] = {}
        while True:
            try:
                return get_type_hints(owner, localns=unknown or None, include_extras=True).values()
            except NameError as error:
                name = str(error.name)
                if name in unknown:
                    return []
                unknown[name] = tuple
                self.unresolved.add(name)
            except Exception:  # noqa: BLE001 - an annotation may be any expression, and this one cannot be evaluated
                self.unresolved.add(str(owner.__annotations__))
                return []


#: What a NewType, a TypeVar and a `type X = ...` stand for.
_STANDS_FOR = ("__supertype__", "__bound__", "__default__", "__value__")


def _parts(annotation: Any) -> Sequence[object]:
    """Return the parts of an annotation that is not a class."""
    origin = get_origin(annotation)
    args = get_args(annotation)
    if origin is Literal:
        return [type(member) for member in args]
    if origin is Annotated:
        return args[:1]
    stands_for = (getattr(annotation, name, None) for name in _STANDS_FOR)
    return [*stands_for, *getattr(annotation, "__constraints__", ()), origin, *args]


def _plain(function: Any) -> Any:
    """Return the function under wrappers, partials and callable objects."""
    function = unwrap(function)
    if isinstance(function, partial):
        return _plain(function.func)
    return function if hasattr(function, "__code__") else type(function).__call__
