"""Values as bytes: what is read back equals what was written, in type and value, and nothing else
is ever made.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import pickle
import sys
from collections import Counter, OrderedDict, defaultdict
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_idempotency.core.serialization.results import MAX_DEPTH, Unreadable, Unstorable

from ...support.naming import shown
from . import result_types as of
from .stored_values import INSTANCES, ORDER, PARIS, VALUES, results_of, storing


def there_and_back(value: Any, annotation: Any = None) -> Any:
    results = results_of(annotation)
    return results.load(results.dump(value))


def typed(value: Any) -> Any:  # noqa: PLR0911 - a row per kind
    """Return a value with the types of everything in it, and with what `==` ignores."""
    if isinstance(value, dict):
        return dict, [(typed(key), typed(item)) for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value), [typed(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return type(value), sorted((typed(item) for item in value), key=repr)
    if isinstance(value, float):
        return float, value.hex()
    if isinstance(value, Decimal):
        return Decimal, value.as_tuple()
    if isinstance(value, (datetime, time)):
        zone = value.tzinfo
        return (
            type(value),
            value.replace(tzinfo=None),
            value.fold,
            type(zone),
            value.utcoffset(),
            value.tzname(),
        )
    return type(value), value


@pytest.mark.parametrize(
    "value", VALUES, ids=[f"{type(value).__name__}{n}" for n, value in enumerate(VALUES)]
)
def test_there_and_back(value: Any) -> None:
    """Values come back equal, of the same types all the way down, and newly made."""
    back = there_and_back(value)
    assert typed(back) == typed(value)
    assert typed(there_and_back([value, {"it": value}])) == typed([value, {"it": value}])
    if isinstance(value, (list, dict, set, bytearray)):
        assert back is not value


@pytest.mark.parametrize("text", ["NaN", "-NaN", "sNaN", "NaN123"])
def test_not_a_number(text: str) -> None:
    """A NaN equals nothing, and comes back as a NaN."""
    assert str(there_and_back(Decimal(text))) == text
    assert math.isnan(there_and_back([float("nan")])[0])


@pytest.mark.parametrize(("annotation", "value"), INSTANCES, ids=shown)
def test_instances(annotation: Any, value: Any) -> None:
    """An instance of an allowed class equals what was written, and so do its hash and its text."""
    back = there_and_back(value, annotation)
    assert back == value
    assert type(back) is type(value)
    assert repr(back) == repr(value)
    with contextlib.suppress(TypeError):  # not every one has a hash
        assert hash(back) == hash(value)


@pytest.mark.parametrize("cls", [of.Hashed, of.HashedOpen])
def test_no_hash_is_stored(cls: Any) -> None:
    """attrs may keep an instance's hash inside it; in the next process the hash differs."""
    value = cls("a")
    assert hash(value) == value._attrs_cached_hash
    back = there_and_back(value, cls)
    assert back._attrs_cached_hash is None
    assert hash(back) == hash(value)


def test_no_init() -> None:
    """Fields that __init__ derives are set to what they were; a cached property is not stored."""
    value = of.Derived(1, seed=2)
    assert value.slow is value.slow
    runs = of.Derived.runs
    back = there_and_back(value, of.Derived)
    assert of.Derived.runs == runs
    assert (back.given, back.made, back.note) == (1, 3, "set aside")
    assert not hasattr(back, "unset")
    assert back.slow is not value.slow


def test_pydantic_keeps_more_than_fields() -> None:
    """Extra and private values are kept, and which fields were set."""
    value = of.Loose(the_name="a", more=[1])  # type: ignore[call-arg]
    value._hidden = 4
    assert value.slow is value.slow
    back = there_and_back(value, of.Loose)
    assert back.model_fields_set == {"name", "more"}
    assert (back.model_extra, back._hidden) == ({"more": [1]}, 4)
    assert back.slow is not value.slow


@pytest.mark.parametrize("kind", ["dataclass", "slots", "attrs", "pydantic", "tuple"])
def test_a_class_that_has_grown(kind: str) -> None:
    """A field added since then gets its default, as for any old caller; without one the value is
    unreadable.
    """
    name, stored = {
        "dataclass": ("Page", '{"items":[]}'),
        "slots": ("Order", '{"id":1,"lines":[],"gone":2}'),
        "attrs": ("Account", "{}"),
        "pydantic": ("Later", '{"when":1},[]'),
        "tuple": ("Point", "[1]"),
    }[kind]
    cls = getattr(of, name)
    results = storing(cls, of.Money)
    back = results.load(f'1:{{"$":["{of.__name__}.{name}",{stored}]}}'.encode())
    assert {
        "dataclass": lambda: back.next is None,
        "slots": lambda: back.state is of.State.PAID and not hasattr(back, "gone"),
        "attrs": lambda: back.balance == of.Money(Decimal(0)),
        "pydantic": lambda: back.validated is True,
        "tuple": lambda: back == of.Point(1),
    }[kind]()
    if kind != "attrs":  # every field of it has a default
        without = {"pydantic": "{},[]", "tuple": "[]"}.get(kind, "{}")
        with pytest.raises(Unreadable):
            results.load(f'1:{{"$":["{of.__name__}.{name}",{without}]}}'.encode())


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters())
    | st.binary()
    | st.decimals(allow_nan=False)
    | st.uuids()
    | st.datetimes(timezones=st.none() | st.just(timezone.utc) | st.timezones())
    | st.dates()
    | st.times()
    | st.timedeltas()
)
KEYS = st.recursive(
    SCALARS, lambda keys: st.tuples(keys, keys) | st.frozensets(keys, max_size=3), max_leaves=3
)
NESTED = st.recursive(
    SCALARS,
    lambda values: (
        st.lists(values, max_size=4)
        | st.tuples(values, values)
        | st.dictionaries(st.text(max_size=2) | st.just("$"), values, max_size=4)
        | st.dictionaries(KEYS, values, max_size=3)
        | st.sets(KEYS, max_size=3)
    ),
    max_leaves=20,
)


@given(NESTED)
def test_any_nesting(value: Any) -> None:
    """Any kind may contain any other."""
    assert typed(there_and_back(value)) == typed(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"id": 1}, b'1:{"id":1}'),  # the JSON, and two bytes
        (["ü", None, 1.5], b'1:["\xc3\xbc",null,1.5]'),
        (10**5000, b'1:{"$":["int","' + hex(10**5000).encode() + b'"]}'),
        (float("-inf"), b'1:{"$":["float","-inf"]}'),
        (b"ab", b'1:{"$":["bytes","YWI="]}'),
        (bytearray(b"ab"), b'1:{"$":["bytearray","YWI="]}'),
        ((1, (2,)), b'1:{"$":["tuple",[1,{"$":["tuple",[2]]}]]}'),
        ({1}, b'1:{"$":["set",[1]]}'),
        (frozenset({1}), b'1:{"$":["frozenset",[1]]}'),
        ({1: 2}, b'1:{"$":["dict",[[1,2]]]}'),
        ({"$": 1}, b'1:{"$":["dict",[["$",1]]]}'),
        (Decimal("1.50"), b'1:{"$":["Decimal","1.50"]}'),
        (UUID(int=1), b'1:{"$":["UUID","00000000-0000-0000-0000-000000000001"]}'),
        (date(2026, 1, 2), b'1:{"$":["date","2026-01-02"]}'),
        (time(1, 2, 3), b'1:{"$":["time","01:02:03"]}'),
        (time(1, fold=1), b'1:{"$":["time","01:00:00",1]}'),
        (
            datetime(2026, 1, 2, tzinfo=timezone.utc),
            b'1:{"$":["datetime","2026-01-02T00:00:00+00:00"]}',
        ),
        (
            datetime(2026, 1, 2, tzinfo=PARIS),
            b'1:{"$":["datetime","2026-01-02T00:00:00",0,{"$":["ZoneInfo","Europe/Paris"]}]}',
        ),
        (timedelta(1, 2, 3), b'1:{"$":["timedelta",1,2,3]}'),
        (timezone.utc, b'1:{"$":["timezone",{"$":["timedelta",0,0,0]},"UTC"]}'),
        (PurePosixPath("a"), b'1:{"$":["PurePosixPath","a"]}'),
        (PureWindowsPath("a"), b'1:{"$":["PureWindowsPath","a"]}'),
        (of.State.PAID, b'1:{"$":["tests.core.serialization.result_types.State","PAID"]}'),
        (of.Right.READ, b'1:{"$":["tests.core.serialization.result_types.Right",1]}'),
        (
            of.Point(1, Decimal(2)),
            b'1:{"$":["tests.core.serialization.result_types.Point",[1,{"$":["Decimal","2"]}]]}',
        ),
        (of.Owner("a"), b'1:{"$":["tests.core.serialization.result_types.Owner",{"name":"a"}]}'),
        (
            of.Later(when=date(2026, 1, 2)),
            b'1:{"$":["tests.core.serialization.result_types.Later",{"when":{"$":["date","2026-01-02"]},"validated":true},["when"]]}',
        ),
    ],
    ids=lambda value: (
        type(value).__name__ if not isinstance(value, bytes) else f"{len(value)}{value[:50]!r}"
    ),
)
def test_golden(value: Any, expected: bytes) -> None:
    """Every later release reads what an earlier one wrote."""
    results = storing(of.State, of.Right, of.Point, of.Owner, of.Later)
    assert results.dump(value) == expected
    assert typed(results.load(expected)) == typed(value)


class Plain: ...


class Kept(str):
    __slots__ = ()


class TwoInOne(of.Line, dict): ...


class Slotted:
    __slots__ = ("__hidden", "note")

    note: str

    def hide(self, what: str) -> None:
        self.__hidden = what

    @property
    def hidden(self) -> str:
        return self.__hidden


@dataclasses.dataclass
class OnSlots(Slotted):
    amount: int


def test_slots_of_a_base() -> None:
    """Slots are not fields, but are still part of the value; one that was never set stays unset."""
    value = OnSlots(7)
    value.note = "paid in cash"
    value.hide("the till")
    results = storing(OnSlots)
    back = results.load(results.dump(value))
    assert (back.amount, back.note, back.hidden) == (7, "paid in cash", "the till")
    assert not hasattr(results.load(results.dump(OnSlots(8))), "note")


class ListedLine(of.Line, list): ...


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (
            Plain(),
            "result is a tests.core.serialization.test_typed_json.Plain, which cannot be stored",
        ),
        ([0, {"a": (Plain(),)}], "result[1].a[0] is a tests"),
        ({"not a name": Plain()}, 'result."…" is a'),  # a key may be secret
        (
            {"a": ORDER},
            (
                "result.a is a tests.core.serialization.result_types.Order, and that class is "
                "not named"
            ),
        ),
        (
            [of.State.PAID],
            (
                "result[0] is a tests.core.serialization.result_types.State, and that class is "
                "not named"
            ),
        ),
        (Kept("a"), "Kept, which"),
        (OrderedDict(), "OrderedDict, which"),
        (defaultdict(list), "defaultdict, which"),
        (Counter(), "Counter, which"),
        (Plain, "builtins.type, which"),
        (len, "builtin_function_or_method, which"),
        (object(), "builtins.object, which"),
        (ValueError("x"), "ValueError, which"),
        (1j, "complex, which"),
        (iter([]), "list_iterator, which"),
        (memoryview(b""), "memoryview, which"),
        (TwoInOne("a", Decimal(1)), "TwoInOne, which"),
        # Nor would it come back: object.__new__ makes no list.
        (
            ListedLine("a", Decimal(1)),
            "ListedLine, which",
        ),
    ],
    ids=shown,
)
def test_unstorable(value: Any, says: str) -> None:
    """The message names the path and the type, and ends with what to do."""
    with pytest.raises(Unstorable) as caught:
        storing(unnamed="Do this.", unknown="Do this.").dump(value)
    assert says in str(caught.value)
    assert str(caught.value).endswith("Do this.")


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def test_depth() -> None:
    """Values are stored to a depth that every process can read back; deeper values and cycles are
    refused.
    """
    assert there_and_back(nested(MAX_DEPTH)) == nested(MAX_DEPTH)
    chain: Any = None
    for _ in range(MAX_DEPTH // 2):
        chain = of.Page([{1: (chain,)}], None)
    with pytest.raises(Unstorable, match="deep"):
        there_and_back(chain, of.Page)
    link: Any = None
    for _ in range(MAX_DEPTH - 2):
        link = of.Page([], link)
    assert there_and_back(link, of.Page) == link
    with pytest.raises(Unstorable, match="deep"):
        there_and_back(nested(MAX_DEPTH + 2))
    cycle: list[Any] = []
    cycle.append(cycle)
    with pytest.raises(Unstorable, match="holds itself"):
        there_and_back(cycle)


def test_a_stack_that_is_nearly_full() -> None:
    """Where Python's own limit comes first, the exception is ours, too."""

    def at_depth(frames: int) -> None:
        if frames:
            at_depth(frames - 1)
        else:
            storing().dump(nested(MAX_DEPTH))

    frame, frames = sys._getframe(), 0
    while frame.f_back:
        frame, frames = frame.f_back, frames + 1
    with pytest.raises(Unstorable, match="RecursionError"):
        at_depth(sys.getrecursionlimit() - frames - 60)


def test_a_value_that_fails_when_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """dump() raises one exception, whatever an instance does.

    Its message contains nothing of the value.
    """
    value = of.Loose(the_name="a")
    monkeypatch.setattr(of.Loose, "model_extra", property(lambda self: vars(self)["secret"]))
    with pytest.raises(Unstorable, match="KeyError") as caught:
        storing(of.Loose).dump(value)
    assert "secret" not in str(caught.value)


def test_two_classes_of_one_name() -> None:
    """They could be mistaken for each other, so neither is stored."""
    twin = type("Owner", (of.Owner,), {"__module__": of.__name__, "__qualname__": "Owner"})
    results = storing(of.Owner, twin, of.Money)
    for cls in (of.Owner, twin):
        with pytest.raises(Unstorable):
            results.dump(cls("a"))
    assert results.load(results.dump(of.Money(Decimal(1)))) == of.Money(Decimal(1))


def test_a_subclass_is_another_class() -> None:
    """Exact classes are allowed, not their subclasses."""
    with pytest.raises(Unstorable, match=r"PaidPage, and that class is not named"):
        storing(of.Page).dump(of.PaidPage([]))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"1",
        b"1:",
        b"2:{}",  # of another version
        b"null",
        b"1:{",
        b"1:1 2",
        b"1:\xff",
        b'1:{"$":1}',
        b'1:{"$":[]}',
        b'1:{"$":{}}',
        b'1:{"$":[[]]}',
        b'1:{"$":["nothing",1]}',
        b'1:{"$":["int","zz"]}',
        b'1:{"$":["int"]}',
        b'1:{"$":["int","0x1","0x1"]}',
        b'1:{"$":["bytes","!"]}',
        b'1:{"$":["Decimal","x"]}',
        b'1:{"$":["date","yesterday"]}',
        b'1:{"$":["datetime","2026-01-01","a"]}',
        b'1:{"$":["ZoneInfo","Europe/Nowhere"]}',
        b'1:{"$":["ZoneInfo","../../etc/passwd"]}',
        b'1:{"$":["set",[[]]]}',
        b'1:{"$":["serialized",1]}',
        b'1:{"$":["error","ValueError",{"args":[]}]}',
        b'1:{"$":["tests.core.serialization.result_types.Order",{}]}',  # not allowed here
        b'1:{"$":["tests.core.serialization.result_types.Owner",{}]}',  # a field is missing
        b'1:{"$":["tests.core.serialization.result_types.Owner",1]}',
        b'1:{"$":["tests.core.serialization.result_types.State","GONE"]}',
        b"1:" + b"[" * 100_000,
        b"1:" + b"9" * 5_000,
        pickle.dumps({"id": 1}),
    ],
    ids=lambda data: f"{len(data)}{data[:60]!r}",
)
def test_other_bytes(data: bytes) -> None:
    """They are refused with the one exception that callers expect."""
    with pytest.raises(Unreadable):
        storing(of.Owner, of.State).load(data)


@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: b"1:" + text.encode()))
def test_any_bytes(data: bytes) -> None:
    """Nothing but `Unreadable` is raised."""
    with contextlib.suppress(Unreadable):
        storing(of.Owner).load(data)


@pytest.mark.parametrize(
    "name",
    [
        "os.system",
        "builtins.eval",
        "subprocess.Popen",
        "pathlib.Path",
        "tests.core.serialization.result_types.Order",
        "type",
    ],
)
def test_a_class_that_is_not_allowed_is_never_made(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes choose among the allowed classes. No name in them is ever looked up."""
    calls: list[object] = []
    monkeypatch.setattr(os, "system", calls.append)
    monkeypatch.setattr(of.Order, "__setattr__", lambda *args: calls.append(args))
    for parts in ('"true"', "{}", '{"__class__":1}', "[]"):
        with pytest.raises(Unreadable):
            storing(of.Owner).load(f'1:{{"$":["{name}",{parts}]}}'.encode())
    assert calls == []


def test_tampered_state_stays_data() -> None:
    """Python's own names become at most entries of `__dict__`: an instance cannot become one of
    another class.
    """
    back = storing(of.Line).load(
        b'1:{"$":["tests.core.serialization.result_types.Line",{"name":"a","price":1,"__class__":"x","__init__":"y","__dict__":{}}]}'
    )
    assert type(back) is of.Line
    assert back.name == "a"


def test_changes_do_not_reach_what_is_stored() -> None:
    """Values are written at once, and read anew."""
    value = {"lines": [of.Line("tea", Decimal(1))]}
    results = storing(of.Line)
    data = results.dump(value)
    value["lines"].clear()
    first = results.load(data)
    first["lines"][0].name = "changed"
    assert results.load(data) == {"lines": [of.Line("tea", Decimal(1))]}
