"""Values of every kind that is stored. `stored.json` has the bytes of each, in this order, as the release of
November 2026 wrote them.

A value is added at the end of `MORE`, and `python -m tests.core.serialization.stored_values` appends its bytes.
Bytes that are there never change: records of deployments have them.
"""

from __future__ import annotations

import json
import math
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from django_idempotency.core.serialization.codecs import codec_of
from django_idempotency.core.serialization.results import Results

from . import result_types as of

STORED = Path(__file__).with_name("stored.json")

PARIS = ZoneInfo("Europe/Paris")
ORDER = of.Order(id=UUID(int=7), lines=[of.Line("tea", Decimal("1.50"))], tags=frozenset({"a"}))

#: Each of these comes back equal and of its type, without any class being named.
VALUES: list[Any] = [
    None,
    False,
    True,
    0,
    1,
    -(2**64),
    2**1024,
    -(10**5000),  # more digits than Python reads
    0.0,
    -0.0,
    1e-320,
    0.1,
    1e22,
    math.inf,
    -math.inf,
    "",
    "tea ☕ \x00 \u2028",
    "\ud800",  # half a pair
    "\ud83d\ude00",  # two halves, which are not the character
    "$",
    b"",
    b"\x00\xff",
    bytearray(b"x"),
    [],
    (),
    {},
    set(),
    frozenset(),
    [None, [0, ""], ([],), {"a": ()}],
    {1, (2, 3)},
    frozenset({frozenset({1})}),
    {"b": 1, "a": 2},  # in this order
    {"$": ["int", "0x1"]},  # looks like one of ours
    {"a": {"$": {"$": None}}},
    {1: "int", "1": "str", (1,): "tuple", None: "none", Decimal(1): "the same key as 1"},
    {True: 1},
    Decimal(1),
    Decimal("1.00"),
    Decimal("-0E+3"),
    Decimal("1E+999999"),
    Decimal("Infinity"),
    UUID(int=1),
    date(1, 1, 1),
    time(23, 59, 59, 999999),
    time(1, 2, fold=1),
    time(1, 2, tzinfo=timezone.utc),
    time(1, 2, tzinfo=PARIS),
    datetime(2026, 3, 1, 12, 0, 0, 1),  # noqa: DTZ001 - naive
    datetime(2026, 3, 1, fold=1),  # noqa: DTZ001
    datetime(9999, 12, 31, tzinfo=timezone.utc),
    datetime(2026, 3, 1, tzinfo=timezone(timedelta(hours=-3, seconds=1, microseconds=2))),
    datetime(2026, 3, 1, tzinfo=timezone(timedelta(hours=1), "CET")),
    datetime(2026, 7, 1, tzinfo=PARIS),
    datetime(2026, 10, 25, 2, 30, tzinfo=PARIS),
    datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=PARIS),  # the second 2:30 of that night
    timedelta(-1, 1, 1),
    timedelta.max,
    timezone.utc,
    PARIS,
    Path("a/b"),
    PurePosixPath("."),
    PureWindowsPath(r"c:\x"),
    {"deep": [{"at": (datetime(2026, 1, 1, tzinfo=PARIS), {"amounts": {Decimal("1.10")}})}]},
]

#: Instances, with the annotation that allows them.
INSTANCES: list[tuple[Any, Any]] = [
    (of.State, of.State.HELD),
    (of.Level, of.Level.LOW),
    (of.Text, of.Text.A),
    (of.Right, of.Right.READ | of.Right.WRITE),
    (of.Right, of.Right(0)),
    (of.Point, of.Point(1)),
    (of.Order, ORDER),
    (of.Order, {"orders": [ORDER, (ORDER,)]}),
    (of.Page[of.Order], of.Page([ORDER], of.Page([]))),
    (of.PaidPage | of.State, of.PaidPage([of.State.PAID])),
    (of.Money, of.Money(Decimal("1.0"), "USD")),
    (of.Money, {of.Money(Decimal(1)): {of.Money(Decimal(2))}}),
    (of.Account, of.Account(of.Owner("a"))),
    (of.Hashed, of.Hashed("a")),
    (of.HashedOpen, of.HashedOpen("a")),
    (of.Loose, of.Loose(the_name="a", more=[1], later=of.Later(when=date(2026, 1, 1)))),  # type: ignore[call-arg]
    # Never validated, so not now.
    (
        of.Later,
        of.Later.model_construct(when="no date", validated=False),
    ),
    (of.Roots, of.Roots([of.Point(1)])),
    (of.Envelope[of.Order], of.Envelope[of.Order](body=ORDER)),
    (of.Checked, of.Checked(date(2026, 1, 1))),
    (of.Row, {"order": ORDER, "money": of.Money(Decimal(1))}),
]


def derived() -> of.Derived:
    """Return an instance whose attributes are more than what its __init__ takes."""
    return of.Derived(1, seed=2)


#: Further ones, with the annotation that allows them.
MORE: list[tuple[Any, Any]] = [
    (None, Decimal("sNaN123")),
    (None, [math.nan]),
    (None, {(1, None): [b"a", {"$": ()}]}),
    (None, datetime.max),  # noqa: DTZ901 - naive
    (None, time(1, tzinfo=timezone(timedelta(hours=-1)))),
    (of.State, {of.State.PAID: [of.State.PAID, None]}),
    (of.State, frozenset({of.State.PAID})),
    (of.Derived, derived()),
    (of.Page, of.Page([1, "a", None], of.Page([Decimal("1.0")]))),
    (of.Page[of.Level], of.Page[of.Level]([of.Level.LOW])),
    (of.Account, of.Account()),
    (of.Account | None, [None, of.Account(None, of.Money(Decimal("-0")))]),
    (of.Untyped | of.Owner, of.Untyped(of.Owner("a"))),
    (of.Loose, of.Loose(the_name="a")),
    (of.Waiting, of.Waiting(behind=of.Behind())),
    (of.Envelope[of.Level], of.Envelope[of.Level](body=of.Level.LOW)),
    (of.OrderId, of.Point(-1, Decimal("2.50"))),
    (dict[of.Level, list[of.Owner]], {of.Level.LOW: [of.Owner("a"), of.Owner("b")]}),
    (tuple[of.Level, ...], (of.Level.LOW, of.Level.LOW)),
    (of.Order, [{"orders": {UUID(int=7): ORDER}}, (ORDER, {"note": of.State.HELD})]),
]

#: All of them.
ALL: list[tuple[Any, Any]] = [*((None, value) for value in VALUES), *INSTANCES, *MORE]


def recorded(path: Path = STORED) -> list[bytes]:
    """Return the bytes that a file has."""
    texts: list[str] = json.loads(path.read_text())
    return [text.encode("latin-1") for text in texts]


def record(path: Path, written: list[bytes]) -> None:
    """Append the bytes of values that have none yet."""
    known = recorded(path) if path.exists() else []
    texts = [data.decode("latin-1") for data in [*known, *written[len(known) :]]]
    path.write_text(json.dumps(texts, indent=1) + "\n")


def storing(*classes: type, **terms: Any) -> Results:
    """Return how values of some classes are stored."""
    rows = {cls: codec for cls in classes if (codec := codec_of(cls)) is not None}
    return Results(lambda named: named.found.update(rows), **terms)


def results_of(annotation: Any) -> Results:
    """Return how values of an annotation are stored."""
    return Results(lambda named: named.annotation(annotation))


if __name__ == "__main__":
    # Under the name that the classes of models have elsewhere.
    from . import stored_values as itself  # noqa: PLW0406

    record(STORED, [results_of(annotation).dump(value) for annotation, value in itself.ALL])
