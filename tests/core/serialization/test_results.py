"""What a function returned or raised comes back as it was, if its annotations name it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from ipaddress import IPv4Network
from typing import Any
from uuid import UUID

import pydantic
import pytest

from django_idempotency.core.serialization.results import Unreadable, Unstorable, results_for
from django_idempotency.functions.kept_exceptions import dump_error, load_error

from ...support.naming import shown
from . import result_types as of

ORDER = of.Order(id=UUID(int=7), lines=[of.Line("tea", Decimal("1.50"))])
KEPT = (of.Declined, of.Fielded, of.Slotted, LookupError)


def bare(): ...


async def acoroutine(value): ...


@pytest.mark.parametrize("value", [None, 0, "", [], False, {}, (), b"", 0.0], ids=shown)
@pytest.mark.parametrize(
    "serializer", [None, (lambda value: [value], list.pop)], ids=["none", "a list"]
)
def test_nothing_is_an_answer(value: Any, serializer: Any) -> None:
    """None, 0, "", [] and False come back as what they were."""
    results = results_for(bare, serializer)
    back = results.load(results.dump(value))
    assert back == value
    assert type(back) is type(value)


def test_by_annotation() -> None:
    """Instances of what the return annotation names, and of what is named beside it, are stored;
    nothing else is.
    """
    results = results_for(of.Service.method)
    assert results.load(results.dump(ORDER)) == ORDER
    with pytest.raises(
        Unstorable,
        match=r"Owner, and that class is not named. Name it in the function's return annotation",
    ):
        results.dump(of.Owner("a"))
    with pytest.raises(Unreadable, match="Line, which is not allowed"):
        results_for(bare).load(results.dump(ORDER))


def test_unresolved_names_are_reported() -> None:
    """What can be resolved is stored; the message says which name prevented the rest."""
    results = results_for(of.partly_unresolved)
    assert results.load(results.dump(ORDER)) == ORDER
    with pytest.raises(Unstorable, match="could not be resolved: Absent "):
        results.dump(of.Owner("a"))


def later() -> Later:
    return Later(1)


RESULTS = results_for(later)


@dataclass
class Later:
    number: int


def test_resolved_when_needed() -> None:
    """A class may be defined after the function is decorated."""
    assert RESULTS.load(RESULTS.dump(Later(1))) == Later(1)


class Schema:
    """An object with both, such as a marshmallow schema."""

    def dump(self, value: of.Owner) -> dict[str, str]:
        return {"its name": value.name}

    def load(self, stored: dict[str, str]) -> of.Owner:
        return of.Owner(stored["its name"])


@pytest.mark.parametrize(
    "serializer",
    [Schema(), (Schema().dump, Schema().load), [Schema().dump, Schema().load]],
    ids=["object", "pair", "list"],
)
def test_serializers(serializer: Any) -> None:
    """A serializer is a pair, or an object with both; it never gets None."""
    results = results_for(bare, serializer)
    assert results.load(results.dump(of.Owner("a"))) == of.Owner("a")
    assert results.load(results.dump(None)) is None


def test_a_serializer_that_makes_none() -> None:
    """The serializer's None is not the function's."""
    results = results_for(bare, (lambda value: None, lambda stored: (stored, "loaded")))
    assert results.load(results.dump(0)) == (None, "loaded")


def test_a_serializer_that_came_or_went() -> None:
    """A result stored without a serializer is not passed to one, and one stored with it is not
    returned without it.
    """
    without, within = results_for(bare), results_for(bare, Schema())
    assert within.load(without.dump({"a": 1})) == {"a": 1}
    with pytest.raises(Unreadable):
        without.load(within.dump(of.Owner("a")))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a", b'1:{"$":["serialized",["a"]]}'),
        ({"a": 1}, b'1:{"$":["serialized",[{"a":1}]]}'),
        (0, b'1:{"$":["serialized",[0]]}'),
        (None, b"1:null"),  # no serializer is called for it
    ],
    ids=shown,
)
def test_golden_results_of_a_serializer(value: Any, expected: bytes) -> None:
    """Every later release reads what an earlier one wrote."""
    results = results_for(bare, (lambda value: [value], lambda stored: stored[0]))
    assert results.dump(value) == expected
    assert results.load(expected) == value


def test_a_serializer_that_fails() -> None:
    """dump() and load() raise one exception each, from the serializer's own."""
    results = results_for(bare, (lambda value: 1 / value, lambda stored: stored["a"]))
    with pytest.raises(Unstorable, match="ZeroDivisionError") as caught:
        results.dump(0)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(Unreadable, match="TypeError"):
        results.load(results.dump(1))
    with pytest.raises(Unstorable, match="result is a builtins"):
        results_for(bare, (lambda value: object(), id)).dump(1)


def test_what_pydantic_knows() -> None:
    """A TypeAdapter is a serializer for types that the table does not have."""
    network = pydantic.TypeAdapter(IPv4Network)
    results = results_for(bare, (network.dump_json, network.validate_json))
    value = IPv4Network("10.1.0.0/16")
    assert results.load(results.dump(value)) == value
    with pytest.raises(Unstorable, match=r"ipaddress.IPv4Network, which cannot be stored"):
        results_for(bare).dump(value)


def test_what_cattrs_knows() -> None:
    """A converter is one, with its hooks."""
    converter = pytest.importorskip("cattrs").Converter()
    converter.register_unstructure_hook(IPv4Network, str)
    converter.register_structure_hook(IPv4Network, lambda text, _: IPv4Network(text))
    pair = (converter.unstructure, lambda stored: converter.structure(stored, list[IPv4Network]))
    results = results_for(bare, pair)
    value = [IPv4Network("10.1.0.0/16")]
    assert results.load(results.dump(value)) == value


@pytest.mark.parametrize(
    "serializer",
    [
        *(1, "json", (), (id,), (id, id, id), (id, None), json, object()),
        *((acoroutine, id), (id, acoroutine)),
    ],
    ids=shown,
)
def test_wrong_serializers(serializer: Any) -> None:
    """They are refused when the function is decorated."""
    with pytest.raises(ValueError, match="serializer takes"):
        results_for(bare, serializer)


# --------------------------------------------------------------------------------------- exceptions


@pytest.mark.parametrize(
    "error",
    [
        of.Declined(of.State.PAID, limit=Decimal("1.50")),
        of.Fielded(3),
        of.Slotted(3, ORDER),
        LookupError(),
        LookupError("a", 1, (b"x",)),
    ],
    ids=shown,
)
def test_exceptions(error: Exception) -> None:
    """Class, text, args and attributes are the same, without a call of __init__."""
    back = load_error(dump_error(error, KEPT), KEPT)
    assert type(back) is type(error)
    assert (str(back), repr(back), back.args, vars(back)) == (
        str(error),
        repr(error),
        error.args,
        vars(error),
    )
    for name in ("code", "order", "reason", "limit"):
        assert getattr(back, name, None) == getattr(error, name, None)
    assert [back.__cause__, back.__context__, back.__traceback__] == [None] * 3


@pytest.mark.parametrize(
    ("error", "fields"),
    [
        (OSError(2, "gone", "a file", None, "another"), "errno strerror filename filename2"),
        (ImportError("x", name="n", path="/p"), "msg name path"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"), "encoding object start end reason"),
        (SyntaxError("no", ("a.py", 3, 1, "a b")), "msg filename lineno offset text"),
        (AttributeError("no", name="n"), "name"),
        (StopIteration(3), "value"),
    ],
    ids=shown,
)
def test_exceptions_of_python_itself(error: Exception, fields: str) -> None:
    """They have fields that are in no `__dict__`, and some of those are not in args."""
    back = load_error(dump_error(error, [type(error)]), [type(error)])
    assert (str(back), back.args) == (str(error), error.args)
    assert {name: getattr(back, name) for name in fields.split()} == {
        name: getattr(error, name) for name in fields.split()
    }


def test_what_lacks_a_name_is_not_kept() -> None:
    """The object may be anything, and only helps Python to guess what was meant."""
    with pytest.raises(AttributeError) as caught:
        object().nothing  # type: ignore[attr-defined]  # noqa: B018
    back = load_error(dump_error(caught.value, [AttributeError]), [AttributeError])
    assert (str(back), back.name, back.obj) == (str(caught.value), "nothing", None)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (LookupError(), b'["error","builtins.LookupError",{"args":[]}]'),
        (
            LookupError("a", 1, (b"x",)),
            b'["error","builtins.LookupError",{"args":["a",1,{"$":["tuple",[{"$":["bytes","eA=="]}]]}]}]',
        ),
        (
            of.Declined(of.State.PAID, limit=Decimal("1.50")),
            (
                b'["error","tests.core.serialization.result_types.Declined",{"reason":{"$":["tests.core.serialization.result_types.State","PAID"]},'
                b'"limit":{"$":["Decimal","1.50"]},"args":["declined: PAID"]}]'
            ),
        ),
        (
            of.Slotted(3),
            b'["error","tests.core.serialization.result_types.Slotted",{"code":3,"order":null,"args":[3,null]}]',
        ),
    ],
    ids=shown,
)
def test_golden_exceptions(error: Exception, expected: bytes) -> None:
    """Every later release raises what an earlier one wrote."""
    stored = b'1:{"$":' + expected + b"}"
    assert dump_error(error, KEPT) == stored
    back = load_error(stored, KEPT)
    assert (type(back), repr(back), back.args, vars(back)) == (
        type(error),
        repr(error),
        error.args,
        vars(error),
    )


def test_the_nearest_class_that_is_named() -> None:
    """An exception of a class that is not named is kept as its nearest base class that is."""
    again = of.DeclinedAgain(of.State.PAID, limit=Decimal(1))
    assert (
        type(load_error(dump_error(again, [Exception, of.Declined]), [Exception, of.Declined]))
        is of.Declined
    )
    assert (
        type(load_error(dump_error(again, [Exception, of.DeclinedAgain]), [of.DeclinedAgain]))
        is of.DeclinedAgain
    )
    back = load_error(dump_error(KeyError("a"), [KeyError, LookupError]), [KeyError])
    assert (type(back), str(back)) == (KeyError, "'a'")


def test_notes_are_kept() -> None:
    error = of.Fielded(3)
    object.__setattr__(error, "__notes__", ["at the till"])  # add_note(), from Python 3.11
    assert load_error(dump_error(error, KEPT), KEPT).__notes__ == ["at the till"]


@pytest.mark.parametrize(
    ("error", "kept", "says"),
    [
        (ValueError(), KEPT, "ValueError is not among the exceptions to keep"),
        (LookupError(object()), KEPT, r"error.args\[0\] is a builtins.object.*have plain data"),
        (of.Rewritten(of.State.PAID, limit=Decimal(1)), KEPT, "Rewritten would read differently"),
        (of.Strict(name="a"), [of.Strict], "Strict cannot be rebuilt"),
    ],
    ids=shown,
)
def test_exceptions_that_cannot_be_kept(
    error: Exception, kept: list[type[Exception]], says: str
) -> None:
    """An exception that would come back as another one is not stored."""
    with pytest.raises(Unstorable, match=says):
        dump_error(error, kept)


def test_only_named_exceptions_are_rebuilt() -> None:
    """Today's classes decide, not the bytes.

    A result is never read as an exception, nor the reverse.
    """
    data = dump_error(of.Fielded(3), KEPT)
    assert (
        data
        == b'1:{"$":["error","tests.core.serialization.result_types.Fielded",{"code":3,"args":[3]}]}'
    )
    for other in (
        b'1:{"$":["error","builtins.SystemExit",{"args":[3]}]}',
        b"1:3",
        b"1:null",
        b'1:{"$":["error"]}',
    ):
        with pytest.raises(Unreadable):
            load_error(other, KEPT)
    with pytest.raises(Unreadable):
        load_error(data, [of.Declined])
    with pytest.raises(Unreadable):
        results_for(bare).load(data)
