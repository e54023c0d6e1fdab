"""The canonical bytes of values: which values are equal, which differ, and which cannot be
hashed.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import hashlib
import json
import math
import socket
import subprocess
import sys
from collections import OrderedDict, defaultdict
from decimal import Decimal
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import MappingProxyType
from typing import Any, NamedTuple, TypedDict
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import pydantic
import pytest
from django.contrib.auth.models import User
from django.db import models
from django.http import QueryDict
from django.test.utils import isolate_apps
from django.utils.functional import SimpleLazyObject
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy
from hypothesis import given
from hypothesis import strategies as st

from django_idempotency.core.canonical import (
    UnhashableValue,
    canonical_bytes,
    digest,
    hasher,
    is_missing,
)
from testproject.payments.models import Charge

from ..support.naming import shown

UTC = dt.timezone.utc
BERLIN = ZoneInfo("Europe/Berlin")


class Currency(enum.Enum):
    INR = "inr"


class Level(enum.IntEnum):
    HIGH = 3


class Word(str, enum.Enum):
    INR = "inr"


class Right(enum.Flag):
    READ = 1
    WRITE = 2


class Id(str):
    __slots__ = ()


class Count(int):
    pass


class Pair(NamedTuple):
    left: int
    right: str


class Typed(TypedDict):
    left: int
    right: str


@dataclasses.dataclass
class Data:
    left: int
    right: str
    seen: object = dataclasses.field(default=None, compare=False)
    kind: dataclasses.InitVar[int] = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    left: int
    right: str


@attrs.define
class Attrs:
    left: int
    right: str
    seen: object = attrs.field(default=None, eq=False)


class Model(pydantic.BaseModel):
    left: int
    right: str


class Loose(pydantic.BaseModel, extra="allow"):
    left: int


class Root(pydantic.RootModel[list[int]]):
    pass


class Order(pydantic.BaseModel):
    id: UUID
    lines: list[Slotted]
    total: Decimal


#: Never change these: keys that projects have stored depend on them.
GOLDEN: list[tuple[Any, str]] = [
    (None, "6e3b"),
    (True, "793b"),
    (False, "7a3b"),
    (0, "69303b"),
    (255, "6966663b"),
    (-1, "692d313b"),
    (0.0, "66302e303b"),
    (-0.0, "66302e303b"),
    (0.1, "66302e313b"),
    (1e300, "6631652b3330303b"),
    (math.inf, "66696e663b"),
    (math.nan, "666e616e3b"),
    (Decimal(0), "64303b"),
    (Decimal("-0.00"), "64303b"),
    (Decimal("12.50"), "64313235652d313b"),
    (Decimal(-1200), "642d313265323b"),
    (Decimal("NaN"), "646e616e3b"),
    (Decimal("-Infinity"), "642d696e663b"),
    ("", "73303a"),
    ("é", "73313ac3a9"),
    ("\ud800", "73313aeda080"),
    ("a;b", "73333a613b62"),
    (b"", "62303a"),
    (b"a\xff", "62323a61c3bf"),
    (UUID(int=1), "7530303030303030303030303030303030303030303030303030303030303030313b"),
    (dt.date(2026, 9, 1), "4462346131343b"),
    (dt.time(12, 30), "546137613335383230303b"),
    (dt.time(12, 30, tzinfo=UTC), "556137613335383230302f303b"),
    (dt.timedelta(days=-1, microseconds=1), "502d313431646437356666663b"),
    # A wall time.
    (dt.datetime(2026, 9, 1, 12, 30), "5765333161376533306339303230303b"),  # noqa: DTZ001
    (dt.datetime(2026, 9, 1, 12, 30, tzinfo=UTC), "4965333161376533306339303230303b"),
    (PurePosixPath("/a/b"), "70343a2f612f62"),
    ([], "5b5d"),
    ([1, [2]], "5b69313b5b69323b5d5d"),
    ({}, "7b7d"),
    ({"b": 1, "a": None}, "7b73313a616e3b73313a6269313b7d"),
    ({1: "x", "1": "y", None: 0}, "7b69313b73313a786e3b69303b73313a3173313a797d"),
    (set(), "3c3e"),
    ({3, 1, "1"}, "3c69313b69333b73313a313e"),
]


@pytest.mark.parametrize(("value", "expected"), GOLDEN, ids=shown)
def test_golden_vectors(value: object, expected: str) -> None:
    """The bytes of a value are the same in every release."""
    assert canonical_bytes(value).hex() == expected


@pytest.mark.slow
def test_the_bytes_are_those_of_any_process() -> None:
    """Neither the hash seed nor the order of a set affects the bytes."""
    script = (
        "from django_idempotency.core.canonical import digest; import sys; "
        "print(digest({'names': {'a', 'b', 'c', 'd'}, 3: frozenset({1, 'x', None})}))"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert seen == {digest({3: frozenset({None, 1, "x"}), "names": {"d", "c", "b", "a"}}) + "\n"}


EQUAL: list[list[Any]] = [
    [b"ab", bytearray(b"ab"), memoryview(b"ab")],
    [0.0, -0.0],
    [Decimal(1), Decimal("1.0"), Decimal("1E0"), Decimal("0.1E1"), Decimal("01.00")],
    [Decimal(100), Decimal("1E2"), Decimal("100.0")],
    [Decimal("NaN"), Decimal("-NaN"), Decimal("NaN123"), Decimal("sNaN")],
    [math.nan, -math.nan, float("nan")],
    [
        "inr",
        Currency.INR,
        Word.INR,
        Id("inr"),
        mark_safe("inr"),
        gettext_lazy("inr"),
        SimpleLazyObject(lambda: "inr"),
    ],
    [3, Level.HIGH, Count(3), Right.READ | Right.WRITE],
    [PurePosixPath("a/b"), Path("a/b"), PureWindowsPath("a\\b")],
    [(1, "x"), [1, "x"], Pair(1, "x")],
    [{1, 2}, frozenset({2, 1}), {Count(1), 2}],
    [
        {"left": 1, "right": "x"},
        {"right": "x", "left": 1},
        OrderedDict(right="x", left=1),
        MappingProxyType({"right": "x", "left": 1}),
        Typed(left=1, right="x"),
        Data(1, "x"),
        Data(1, "x", seen=object()),  # compare=False
        Slotted(1, "x"),
        Attrs(1, "x"),
        Attrs(1, "x", seen=object()),  # eq=False
        Model(left=1, right="x"),
        Loose(left=1, right="x"),  # type: ignore[call-arg]
    ],
    [[1, 2], Root([1, 2])],
    [defaultdict(list, a=["1"]), {"a": ["1"]}, QueryDict("a=1")],
    [
        dt.datetime(2026, 9, 1, 12, 0, tzinfo=UTC),
        dt.datetime(2026, 9, 1, 14, 0, tzinfo=BERLIN),
        dt.datetime(2026, 9, 1, 10, 0, tzinfo=dt.timezone(dt.timedelta(hours=-2))),
    ],
    [dt.time(12, tzinfo=UTC), dt.time(12, tzinfo=dt.timezone(dt.timedelta(0)))],
    [dt.timedelta(days=1), dt.timedelta(seconds=86400)],
    [
        {"id": UUID(int=5), "lines": [{"left": 1, "right": "x"}], "total": Decimal("1.5")},
        Order(id=UUID(int=5), lines=[Slotted(1, "x")], total=Decimal("1.50")),
    ],
]


@pytest.mark.parametrize("values", EQUAL, ids=lambda values: ascii(values[0])[:40])
def test_equal_meanings(values: list[Any]) -> None:
    """Values with the same meaning have the same bytes."""
    assert len({canonical_bytes(value) for value in values}) == 1


DIFFERENT: list[Any] = [
    *[None, True, False, 1, 0, 1.0, 0.0, Decimal(1), Decimal(0), "1", b"1", "True", "None", ""],
    *[
        math.inf,
        -math.inf,
        math.nan,
        Decimal("Infinity"),
        Decimal("-Infinity"),
        Decimal("NaN"),
        "nan",
        "inf",
    ],
    *[
        0.1,
        0.1 + 2**-56,
        Decimal("0.1"),
        Decimal("0.10000000000000001"),
        10**400,
        10**400 + 1,
        -(10**400),
    ],
    *[Decimal("1E+1"), Decimal("1E-2"), Decimal(-1), Decimal(11), Decimal("1E+999999")],
    *["é", "e\u0301", "\ud800", "\ud801", "\ufffd", b"\xc3\xa9", "a", "a ", "A"],
    *[UUID(int=77), str(UUID(int=77)), UUID(int=77).bytes, UUID(int=77).int],
    *[PurePosixPath("a"), PurePosixPath("/a"), PurePosixPath("A")],
    *[dt.date(2026, 9, 1), "2026-09-01", dt.date(2026, 9, 2), dt.date(2026, 9, 1).toordinal()],
    dt.datetime(2026, 9, 1),  # noqa: DTZ001 - a wall time
    dt.datetime(2026, 9, 1, tzinfo=UTC),
    dt.datetime(2026, 9, 1, tzinfo=BERLIN),
    dt.datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN),
    dt.datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=BERLIN),  # an hour later
    dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=14))),  # before year 1, in UTC
    dt.datetime.max.replace(tzinfo=dt.timezone(dt.timedelta(hours=-12))),
    *[
        dt.time(0),
        dt.time(0, 0, 0, 1),
        dt.time(0, tzinfo=UTC),
        dt.time(0, tzinfo=dt.timezone(dt.timedelta(hours=1))),
    ],
    *[
        dt.timedelta(0),
        dt.timedelta(1),
        dt.timedelta(-1),
        dt.timedelta(0, 1),
        dt.timedelta(0, 0, 1),
    ],
    *[[], {}, set(), [[]], [None], {None: None}, {None}, [[], []], [[[]]], {"": ""}, {""}],
    *[[1, 2], [2, 1], {1, 2}, [[1], 2], [1, [2]], [12], ["1", "2"], ["12"], [1, 2, None]],
    *[
        {1: 2},
        {2: 1},
        {"1": 2},
        {1: "2"},
        {1.5: 2},
        {True: 2},
        {(1,): 2},
        {(True,): 2},
        {frozenset({1}): 2},
    ],
    *[{"a": 1, "b": 2}, {"a": 2, "b": 1}, {"a": {"b": 2}}, ["a", 1, "b", 2], [["a", 1], ["b", 2]]],
    *["s1:a", ["s1:a"], ["a", "b"], ["as1:b"], ["]["], "i1;", ["a]", "[b"], [b"a", "b"], ["ab1:b"]],
    Data(1, "y"),
    Data(1, None),  # type: ignore[arg-type]
    Loose(left=1, more=2),  # type: ignore[call-arg]
    QueryDict("a=1&a=2"),
    QueryDict("a=2"),
]


def test_different_meanings() -> None:
    """No two of these have the same bytes."""
    seen: dict[bytes, Any] = {}
    for value in DIFFERENT:
        assert canonical_bytes(value) not in seen, (value, seen[canonical_bytes(value)])
        seen[canonical_bytes(value)] = value


def test_rows_of_a_dict_share_no_more_than_their_names() -> None:
    """Dicts with equal names are written in one order; names that are equal only to Python are kept
    apart.
    """
    assert canonical_bytes([{"a": 1, "b": 2}, {"b": 2, "a": 1}]) == canonical_bytes(
        [{"a": 1, "b": 2}] * 2
    )
    assert canonical_bytes([{1: "x"}, {True: "x"}]) != canonical_bytes([{1: "x"}, {1: "x"}])
    assert canonical_bytes([{(1,): "x"}, {(True,): "x"}]) != canonical_bytes(
        [{(1,): "x"}, {(1,): "x"}]
    )


# ----------------------------------------------------------------------------------------- Django's


def test_a_row_means_its_model_and_key() -> None:
    """A row means its model and key, whichever fields are loaded, also behind a lazy object such as
    request.user.
    """
    user = User(pk=5, username="asha")
    assert (
        canonical_bytes(user)
        == canonical_bytes(User(pk=5))
        == canonical_bytes(SimpleLazyObject(lambda: user))
    )
    assert (
        len(
            {
                canonical_bytes(value)
                for value in (user, User(pk=6), Charge(pk=5), 5, ("auth.user", 5))
            }
        )
        == 5
    )


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (User(pk=5), b"(s9:auth.useri5;)"),
        (Charge(pk=255), b"(s15:payments.chargeiff;)"),
        (User(pk="a"), b"(s9:auth.users1:a)"),
        ([User(pk=5)], b"[(s9:auth.useri5;)]"),
    ],
    ids=["a row", "its number is in hex", "a text", "among others"],
)
def test_the_bytes_of_a_row_stay_as_they_are(row: Any, expected: bytes) -> None:
    """The bytes of a row never change, because stored keys depend on them."""
    assert canonical_bytes(row) == expected


def test_a_proxy_means_the_row_it_shows() -> None:
    """A proxy equals its row, as in Django's own ==."""

    class Payer(User):
        class Meta:
            app_label = "payments"
            proxy = True

    assert canonical_bytes(Payer(pk=5)) == canonical_bytes(User(pk=5))


def test_an_unsaved_row_has_no_meaning() -> None:
    """An unsaved row is refused, because it has no identity yet."""
    with pytest.raises(
        UnhashableValue, match=r"^order\.charge: a Charge that is not saved cannot be hashed"
    ):
        canonical_bytes({"order": {"charge": Charge(amount=1)}})


@isolate_apps("testproject.payments")
def test_a_row_with_a_composite_key() -> None:
    """A row with a composite key can be hashed when no part of the key is missing."""

    class Line(models.Model):  # noqa: DJ008 - never shown
        pk = models.CompositePrimaryKey("order", "number")
        order = models.IntegerField()
        number = models.IntegerField()

        class Meta:
            app_label = "payments"

    assert (
        canonical_bytes(Line(order=1, number=2))
        == canonical_bytes(Line(pk=(1, 2)))
        != canonical_bytes(Line(order=2, number=1))
    )
    for unsaved in (Line(), Line(order=1)):
        with pytest.raises(UnhashableValue, match="a Line that is not saved"):
            canonical_bytes(unsaved)


# ----------------------------------------------------------------------------------------- refusals


def circle() -> list[Any]:
    value: list[Any] = []
    value.append({"again": value})
    return value


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda: 1, "a value of type function cannot"),
        (1j, "a value of type complex cannot"),
        (object(), "a value of type object cannot"),
        (int, "a value of type type cannot"),
        ((number for number in [1]), "a value of type generator cannot"),
        (
            {"order": {"items": [1, "x", {"at": range(2)}]}},
            r"order.items\[2\].at: a value of type range cannot",
        ),
        (
            {"a b": {5: {(1,): 1j}}},
            r"\['a b'\]\[5\]\[a key of type tuple\]: a value of type complex cannot",
        ),
        ([Data(1, [1j])], r"\[0\].right\[0\]: a value of type complex cannot"),  # type: ignore[arg-type]
        (
            {Currency: 1},
            "a value of type EnumType cannot"
            if sys.version_info >= (3, 11)
            else "a value of type EnumMeta",
        ),
        (
            circle(),
            r"\[0\].again\[0\].+…: what is nested deeper than 128 levels, or contains itself,",
        ),
        (deep(129), r"(\[0\]){8}…: what is nested deeper"),
        (dt.time(12, tzinfo=BERLIN), "a time in a zone"),
        ([{"inr": 1, Currency.INR: 2}], r"\[0\]: a mapping with two keys that are hashed alike"),
    ],
)
def test_what_cannot_be_hashed(value: object, message: str) -> None:
    """The error names the place, the type and the remedy, but never the value."""
    with pytest.raises(UnhashableValue, match=f"^{message}") as caught:
        canonical_bytes(value)
    assert str(caught.value).endswith("Select what identifies the call with key=…")


def test_a_socket_is_left_alone() -> None:
    """A refused value is not touched."""
    with (
        socket.socket() as one,
        pytest.raises(UnhashableValue, match=r"^items\[1\]: a value of type socket"),
    ):
        canonical_bytes({"items": [0, one]})


def test_a_field_that_was_never_set() -> None:
    """An incomplete object cannot be hashed."""
    with pytest.raises(UnhashableValue, match=r"^left: this field of Slotted was never set\."):
        canonical_bytes(object.__new__(Slotted))


def test_what_is_as_deep_as_may_be() -> None:
    """A value with 128 levels can be hashed."""
    assert canonical_bytes(deep(128)).startswith(b"[" * 128 + b"i1;")


def test_the_payload_is_left_as_it_was() -> None:
    """Nothing is sorted, consumed or converted in place."""
    payload = {"b": [3, 1], "a": {"z": Decimal("1.0"), "y": {2, 1}}}
    kept = repr(payload)
    canonical_bytes(payload)
    assert repr(payload) == kept


# ------------------------------------------------------------------------------------------- hashes


@pytest.mark.parametrize("name", ["sha256", "sha512", "sha3_256", "blake2b", "md5"])
def test_digests(name: str) -> None:
    """Any hash of hashlib can be used by its name."""
    assert digest([1], name) == hashlib.new(name, canonical_bytes([1])).hexdigest()


@pytest.mark.parametrize("name", ["sha-257", "", "shake_128", "crc32"])
def test_an_unknown_hash(name: str) -> None:
    """An unknown hash is refused at once, with the available names."""
    with pytest.raises(ValueError, match=r"Type one of .*sha256"):
        hasher(name)


# ------------------------------------------------------------------------------------------ missing


@pytest.mark.parametrize(
    ("value", "missing"),
    [
        (None, True),
        ("", True),
        (b"", True),
        ([], True),
        ((), True),
        ({}, True),
        (set(), True),
        ([None], True),
        ([None, None], True),
        (["o-1", None], True),  # in part; AWS Powertools accepts this as a key
        (("o-1", ""), True),
        ({"order": "o-1", "user": None}, True),
        (SimpleLazyObject(lambda: None), True),  # as of a tenant that the middleware has not found
        (["o-1", SimpleLazyObject(lambda: "")], True),
        (["o-1", SimpleLazyObject(lambda: 0)], False),
        (["o-1", []], True),
        (0, False),
        (0.0, False),
        (Decimal(0), False),
        (False, False),
        (True, False),
        ("False", False),
        (" ", False),
        ([0, False], False),
        (["o-1", [None]], True),  # nothing but nulls, at any depth
        ({"order": {"note": None}}, True),
        ([[], [None, {"id": ""}], {None}], True),
        ({"order": {"id": 0, "note": None}}, False),
        (["o-1", {"id": "o-2", "note": None}], False),
        (dt.timedelta(0), False),
    ],
    ids=shown,
)
def test_missing_keys(value: object, *, missing: bool) -> None:
    """A key is missing if it or one of its parts is; zero and False are keys."""
    assert is_missing(value) is missing


@pytest.mark.parametrize(
    ("value", "missing"),
    [
        ([None, None], True),
        ([None, [{"id": None}, ""]], True),
        ([None, "o-1"], False),
        ([[[0]], None], False),
    ],
    ids=shown,
)
def test_missing_keys_that_were_selected_whole(value: object, *, missing: bool) -> None:
    """A value that holds nothing but nulls identifies nothing; some nulls are part of a value."""
    assert is_missing(value, parts=False) is missing


def test_a_value_in_itself_is_not_missing() -> None:
    """It is refused with its own words when it is hashed."""
    inside: list[Any] = []
    inside.append(inside)
    assert is_missing(inside, parts=False) is False


# --------------------------------------------------------------------------------------- properties

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


def shuffled(value: Any) -> Any:
    """Return the same value with the names of each dict in another order."""
    if isinstance(value, dict):
        return {name: shuffled(value[name]) for name in reversed(value)}
    return [shuffled(item) for item in value] if isinstance(value, list) else value


@given(JSON)
def test_order_of_names_does_not_count(value: Any) -> None:
    """The order in which a dict was filled does not change its meaning."""
    assert canonical_bytes(shuffled(value)) == canonical_bytes(value)


def typed(value: Any) -> str:
    """Return JSON's canonical text, which separates the types that JSON has; -0.0 is 0.0."""
    return json.dumps(value, sort_keys=True).replace("-0.0", "0.0")


@given(JSON, JSON)
def test_json_values_meet_only_if_equal(one: Any, other: Any) -> None:
    """JSON values have equal bytes exactly when they are equal."""
    assert (canonical_bytes(one) == canonical_bytes(other)) is (typed(one) == typed(other))


@given(st.decimals(), st.decimals())
def test_decimals_meet_only_if_equal(one: Decimal, other: Decimal) -> None:
    """Decimals are compared by value, whatever their digits and exponents."""
    same = one.is_nan() and other.is_nan() if one.is_nan() or other.is_nan() else one == other
    assert (canonical_bytes(one) == canonical_bytes(other)) is same


@given(st.datetimes(timezones=st.timezones()), st.datetimes(timezones=st.timezones()))
def test_instants_meet_only_if_equal(one: dt.datetime, other: dt.datetime) -> None:
    """Datetimes are compared by their instant, in any zone and fold."""
    # Before year 1 there is no instant in UTC to compare with.
    epoch = dt.datetime(1, 1, 1)  # noqa: DTZ001

    def instant(value: dt.datetime) -> dt.timedelta:
        offset = value.utcoffset()
        assert offset is not None
        return (value.replace(tzinfo=None) - epoch) - offset

    assert (canonical_bytes(one) == canonical_bytes(other)) is (instant(one) == instant(other))


def test_a_naive_time_is_what_its_clock_shows() -> None:
    """The hour that autumn repeats is one, in either fold; the page says so.

    Aware times are two instants.
    """
    berlin = dt.datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    naive = berlin.replace(tzinfo=None)
    assert digest(naive) == digest(naive.replace(fold=1))
    assert digest(berlin) != digest(berlin.replace(fold=1))
