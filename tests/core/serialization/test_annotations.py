"""Which classes an annotation reaches, also through strings, aliases, generics and fields."""

from __future__ import annotations

import functools
import sys
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Optional, TypeVar, Union

import pytest

from django_idempotency.core.serialization.annotations import TypeCollector

from . import result_types as of

Bound = TypeVar("Bound", bound=of.Owner)
OneOf = TypeVar("OneOf", of.Owner, of.Level)
ORDER = {of.Order, of.Line, of.State}


def classes_in(annotation: Any) -> set[type]:
    collector = TypeCollector()
    collector.annotation(annotation)
    return {*collector.found}


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (None, set()),
        (int, set()),
        (Any, set()),
        (list, set()),
        (object, set()),
        (of.Service, set()),  # a class of neither kind
        (of.State, {of.State}),
        (of.Order, ORDER),  # and what its fields name, as strings
        (Optional[of.Order], ORDER),  # noqa: UP045 - also in the older spelling
        (Union[of.Order, of.Level], {*ORDER, of.Level}),  # noqa: UP007
        (of.Order | None, ORDER),
        (list[of.Level], {of.Level}),
        (dict[of.Level, list[of.Owner]], {of.Level, of.Owner}),
        (tuple[of.Level, ...], {of.Level}),
        (Annotated[of.Level, of.Owner("not this")], {of.Level}),
        (Annotated[of.Level, ["unhashable"]], {of.Level}),
        (of.OrderId, {of.Point}),  # a NewType
        (Literal[of.State.PAID, "x"], {of.State}),
        (Bound, {of.Owner}),
        (OneOf, {of.Owner, of.Level}),
        (list[Bound], {of.Owner}),  # type: ignore[valid-type]
        (of.Page, {of.Page}),  # its fields name it again
        (of.Page[of.Level], {of.Page, of.Level}),
        (of.PaidPage, {of.PaidPage, of.Page}),  # what its base is of is to be named beside it
        (Awaitable[of.Level], {of.Level}),
        (Coroutine[Any, Any, of.Level], {of.Level}),
        (Callable[[of.Level], of.Owner], {of.Owner}),
        (of.Account, {of.Account, of.Owner, of.Money}),
        (of.Untyped, {of.Untyped}),  # it has no annotations
        (of.Loose, {of.Loose, of.Later}),
        (of.Waiting, {of.Waiting, of.Behind}),
        (of.Roots, {of.Roots, of.Point}),
        (of.Envelope[of.Level], {of.Envelope[of.Level], of.Level}),
        (of.Row, {*ORDER, of.Money}),  # a TypedDict is a dict, its values are not
    ],
)
def test_classes_in(annotation: Any, expected: set[type]) -> None:
    assert classes_in(annotation) == expected


@pytest.mark.skipif(sys.version_info < (3, 12), reason="type X = ... came with Python 3.12")
def test_type_aliases() -> None:
    """`type X = ...` is followed, also where it names itself, has parameters or names nothing."""
    names: dict[str, Any] = {"of": of}
    exec(
        "type Tree = dict[str, Tree] | of.Level\ntype Many[T] = list[T] | of.Owner\ntype "
        "Absent = nowhere.Absent",
        names,
    )
    assert classes_in(names["Tree"]) == {of.Level}
    assert classes_in(names["Many"][of.Point]) == {of.Owner, of.Point}
    collector = TypeCollector()
    collector.annotation(names["Absent"])
    assert collector.unresolved == {"nowhere"}


def returned(function: Any) -> tuple[set[type], set[str]]:
    collector = TypeCollector()
    collector.follow(function, returned=True)
    return {*collector.found}, collector.unresolved


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any: ...

    return wrapper


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (of.plain, set()),
        (len, set()),
        (of.Service.method, ORDER),
        (of.Service().method, ORDER),
        (of.Service.cls_method, {of.Money}),
        (vars(of.Service)["cls_method"], {of.Money}),  # the classmethod itself
        (vars(of.Service)["static_method"], {of.Point}),
        (of.Service(), {of.Page, *ORDER}),
        (functools.partial(of.Service.method, of.Service()), ORDER),
        (wrapped(of.Service.method), ORDER),
        (of.awaited, {of.Account, of.Owner, of.Money}),
        (of.rows, {*ORDER, of.Money}),
        (of.unresolved_argument, ORDER),  # only what is returned must resolve
    ],
)
def test_strings(function: Any, expected: set[type]) -> None:
    """Under `from __future__ import annotations` every annotation is a string."""
    assert returned(function) == (expected, set())


def test_names_for_the_type_checker_only() -> None:
    """Names that can be resolved are; the others are reported by name."""
    assert returned(of.partly_unresolved) == (ORDER, {"Absent"})
    found, unresolved = returned(of.hopeless)
    assert found == set()
    assert "Absent" in str(unresolved)


def test_local_classes() -> None:
    """A class inside of a function has no name that an annotation finds: a sentence says so."""

    @dataclass
    class Inner:
        level: of.Level

    def function() -> Inner:
        return Inner(of.Level.LOW)

    assert returned(function) == (set(), {"Inner"})


@dataclass
class Outer:
    """A class that names another inside itself."""

    @dataclass
    class Inner:
        level: of.Level

    inner: Inner


def test_names_inside_a_class() -> None:
    assert classes_in(Outer) == {Outer, Outer.Inner, of.Level}
