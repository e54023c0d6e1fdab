"""Selectors: over Python objects as they are, compiled at their declaration."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import json
import re
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

import attrs
import jmespath.functions
import pydantic
import pytest
from django.utils.functional import SimpleLazyObject

from django_idempotency.core.expressions import Expression, Functions
from django_idempotency.core.expressions.compiled import selector_of
from django_idempotency.core.selectors import simple
from django_idempotency.errors import NotSelectable
from testproject.payments.models import Charge

from ...support.naming import shown

ID = UUID(int=7)


@dataclasses.dataclass(slots=True)
class Line:
    sku: str
    price: Decimal
    hidden: object = dataclasses.field(default="h", compare=False)

    def total(self) -> Decimal:
        return self.price

    @property
    def upper(self) -> str:
        return self.sku.upper()

    @property
    def broken(self) -> str:
        raise LookupError("of the project's own")


class Point(NamedTuple):
    x: int
    y: int


@attrs.define
class Attrs:
    name: str


class Model(pydantic.BaseModel):
    id: UUID


class Plain:
    attribute: Any = "class"
    _private = "secret"

    class Inner:
        pass

    def __init__(self) -> None:
        self.own = {"deep": [1, 2]}
        self.call = len

    @staticmethod
    def static() -> int:
        return 1

    @classmethod
    def make(cls) -> int:
        return 1


LINES = (Line("a", Decimal("1.50")), Line("b", Decimal("2.25")))
PAYLOAD = {
    "id": ID,
    "lines": LINES,
    "point": Point(1, 2),
    "attrs": Attrs("n"),
    "model": Model(id=ID),
    "plain": Plain(),
    "charge": Charge(pk=3, user_id=4, amount=5),
    "proxy": MappingProxyType({"k": 1}),
    "user_dict": UserDict(k=2),
    "lazy": SimpleLazyObject(lambda: LINES[0]),
    "text": "t",
    "amount": Decimal("1.0"),
    "count": 5,
    "names": {"x", "y"},
    "empty": (),
}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("id", ID),
        ("nope", None),
        ("nope.deeper[0].yet", None),
        ("lines[0].sku", "a"),
        ("lines[-1].price", Decimal("2.25")),
        ("lines[9]", None),
        ("lines[*].sku", ["a", "b"]),
        ("lines[].sku", ["a", "b"]),
        ("[lines, lines][].sku", ["a", "b", "a", "b"]),
        ("lines[::-1].sku", ["b", "a"]),
        ("lines[?price > `2`].sku", ["b"]),
        ("lines[?sku == 'a'] | [0].price", Decimal("1.50")),
        ("lines[0].*", ["a", Decimal("1.50")]),  # without what its == leaves out
        ("lines[0].upper", "A"),  # a property
        ("lines[0].total", None),  # a method
        ("point.y", 2),
        ("point[0]", 1),
        ("attrs.name", "n"),
        ("model.id", ID),
        ("model.model_fields_set", {"id"}),
        ("model.model_dump", None),
        ("plain.own.deep[1]", 2),
        ("plain.attribute", "class"),
        ("plain._private", None),
        ("plain.__class__", None),
        ("plain.Inner", None),
        ("plain.call", None),
        ("plain.static", None),
        ("plain.make", None),
        ("plain.*", None),  # it declares no fields
        ("charge.[pk, user_id, amount]", [3, 4, 5]),
        ("charge.save", None),
        ("charge.objects", None),
        ("proxy.k", 1),
        ("proxy.*", [1]),
        ("user_dict.k", 2),
        ("lazy.sku", "a"),
        ("text.upper", None),
        ("amount.real", None),
        ("count.real", None),
        ("names.copy", None),
        ("names[0]", None),
        ("empty || text", "t"),
        ("!empty", True),
        ("empty[0]", None),
        ("[id, nope]", [ID, None]),
        ("{a: id, b: nope}", {"a": ID, "b": None}),
        ("sum(lines[*].price)", Decimal("3.75")),
        ("max_by(lines, &price).sku", "b"),
        ("sort_by(lines, &price)[0].sku", "a"),
        ("length(lines)", 2),
        ("length(proxy)", 1),
        ("type(lines)", "array"),
        ("type(amount)", "number"),
        ("type(id)", "unknown"),
        ("to_string(amount)", "1.0"),
        ("to_string(id)", '"00000000-0000-0000-0000-000000000007"'),
        ("to_string(`[1, 2]`)", "[1,2]"),
        ("to_number('0.10000000000000000555')", Decimal("0.10000000000000000555")),
        ("to_number('12')", 12),
        ("to_number('x')", None),
        ("to_number('nan')", None),
        ("to_number(text)", None),
        ("to_number(amount)", Decimal("1.0")),
        ("to_array(lines)", LINES),
        ("to_array(text)", ["t"]),
        ("join('-', lines[*].sku)", "a-b"),
        ("not_null(nope, text)", "t"),
    ],
)
def test_expressions(expression: str, expected: Any) -> None:
    """JMESPath over objects, tuples and mappings, with values of their original types."""
    found = selector_of(expression)(PAYLOAD)
    assert found == expected
    assert type(found) is type(expected)


def test_nothing_is_copied() -> None:
    """What is selected is the very object."""
    assert selector_of("lines[1]")(PAYLOAD) is LINES[1]
    assert selector_of("@")(PAYLOAD) is PAYLOAD


def test_what_a_property_raises_is_raised() -> None:
    """The expression is not at fault."""
    with pytest.raises(LookupError, match="of the project's own"):
        selector_of("lines[0].broken")(PAYLOAD)


def test_a_callable_is_called_with_the_payload() -> None:
    """An exception from it is passed on."""
    selector = selector_of(lambda payload: payload["count"] + 1)
    assert selector(PAYLOAD) == 6
    with pytest.raises(KeyError):
        selector({})


# ---------------------------------------------------------------------------------------- unpacking

ORDER = {"order": {"id": "o-1", "amount": 1}}


def packed(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def zipped(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


@pytest.mark.parametrize("prefix", ["from_", "powertools_"])
@pytest.mark.parametrize(
    ("name", "pack"),
    [("json", str), ("base64", packed), ("base64_gzip", zipped)],
    ids=["json", "base64", "gzip"],
)
def test_unpacking(prefix: str, name: str, pack: Callable[[str], str]) -> None:
    """Under our names and those of AWS Powertools; text or bytes, as brokers deliver; what is
    absent stays absent.
    """
    body, inner = pack(json.dumps(ORDER)), f"{prefix}{name}(body)"
    expression = f"{inner}.order.id" if name == "json" else f"{prefix}json({inner}).order.id"
    selector = selector_of(expression)
    assert selector({"body": body}) == selector({"body": body.encode()}) == "o-1"
    assert selector({}) is None


def test_amounts_of_json_keep_their_digits() -> None:
    """As floats these two would be one."""
    selector = selector_of("from_json(@)")
    assert selector("0.1") == Decimal("0.1")
    assert selector("0.10000000000000000555") == Decimal("0.10000000000000000555")
    assert [type(value) for value in selector("[1, 1.0, 1e2]")] == [int, Decimal, Decimal]


def test_whole_numbers() -> None:
    """Whole decimals too, and whole numbers with many digits."""
    selector = selector_of("[floor(@), ceil(@)]")
    assert [selector(number) for number in (Decimal("12.5"), Decimal("-12.5"), 12)] == [
        [12, 13],
        [-13, -12],
        [12, 12],
    ]
    assert selector(Decimal("1e400")) == [10**400, 10**400]
    assert selector(Decimal("1e-9999999")) == [0, 1]


@pytest.mark.parametrize(
    ("expression", "value", "said"),
    [
        ("from_json(@)", "{", "from_json() got what is not JSON."),
        ("from_json(@)", "NaN", "from_json() got what is not JSON."),
        ("from_json(@)", "[" * 100_000, "from_json() got what is not JSON."),
        ("from_json(@)", "1" * 5000, "from_json() got what is not JSON."),
        ("from_json(@)", "1e99999999999999999999", "from_json() got what is not JSON."),
        ("from_json(@)", b"\xff", "from_json() got what is not JSON."),
        ("from_json(@)", 5, "from_json() takes string or null, not number."),
        ("from_base64(@)", "%%%", "from_base64() got text that is not base64."),
        ("from_base64(@)", "é", "from_base64() got text that is not base64."),
        ("from_base64(@)", "/w==", "from_base64() found bytes that are not UTF-8 text."),
        ("from_base64_gzip(@)", "AAAA", "from_base64_gzip() got bytes that gzip did not compress."),
        (
            "from_base64_gzip(@)",
            zipped("x" * 99)[:-8],
            "from_base64_gzip() got bytes that gzip did not compress.",
        ),
        ("sum(@)", [1, "secret"], "sum() takes array-number, not array."),
        ("sort_by(@, &a)", [{"a": 1}, {"a": "secret"}], "sort_by() takes number, not string."),
        ("join('-', @)", ["a", 5], "join() takes array-string, not array."),
        ("sum(@)", [Decimal("1e9999999"), 1], "sum() takes numbers of 4300 digits at most."),
        (
            "avg(@)",
            [Decimal("1e5000"), Decimal("0.1")],
            "avg() takes numbers of 4300 digits at most.",
        ),
        ("ceil(@)", Decimal("1e9999999"), "ceil() takes numbers of 4300 digits at most."),
        ("floor(from_json(@))", "1e9999999", "floor() takes numbers of 4300 digits at most."),
        ("keys(@)", "secret", "keys() takes object, not string."),
        ("avg(@)", [Decimal(1), 1.5], "TypeError in one of its functions."),
        ("a < b", {"a": 1, "b": "secret"}, "TypeError in one of its functions."),
        # In the next process its text would differ, and so would the key.
        ("to_string(@)", {"ids": {1, 2}}, "to_string() takes a value that has a text, not set."),
        ("to_string(@)", Functions(), "to_string() takes a value that has a text, not Functions."),
    ],
    ids=lambda value: (
        ascii(value)[:30] if not isinstance(value, str) or value.startswith(("[[", "11")) else None
    ),
)
def test_a_payload_that_does_not_fit(expression: str, value: Any, said: str) -> None:
    """The error says what the function takes, and never what it got."""
    with pytest.raises(NotSelectable) as caught:
        selector_of(expression)(value)
    assert str(caught.value) == f"{expression!r} cannot be applied: {said}"


LONG = Decimal("1234567890123456789012345678901234567890.12")


@pytest.mark.parametrize(
    ("expression", "value", "expected"),
    [
        ("abs(@)", LONG.copy_negate(), LONG),
        ("abs(@)", -3, 3),
        ("sum(@)", [LONG, 1], Decimal("1234567890123456789012345678901234567891.12")),
        ("sum(@)", [1.5, 2], 3.5),
        ("sum(@)", [], 0),
        ("avg(@)", [1, 2], 1.5),
        ("avg(@)", [], None),
        ("max(@)", [LONG, 1], LONG),
    ],
)
def test_numbers_keep_their_digits(expression: str, value: Any, expected: Any) -> None:
    """Rounded, two amounts would be one key."""
    assert selector_of(expression)(value) == expected


def test_a_bomb_is_not_inflated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes may not become gigabytes."""
    monkeypatch.setattr("django_idempotency.core.expressions.functions.INFLATE_LIMIT", 1024**2)
    assert len(selector_of("from_base64_gzip(@)")(zipped("x" * 1024**2))) == 1024**2
    with pytest.raises(NotSelectable, match="inflates 1 MiB at most"):
        selector_of("from_base64_gzip(@)")(zipped("x" * (1024**2 + 1)))


def test_bombs_share_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor may a list of them, one for each element of a projection; the next payload starts
    afresh.
    """
    monkeypatch.setattr("django_idempotency.core.expressions.functions.INFLATE_LIMIT", 1024**2)
    selector = selector_of("[*].from_base64_gzip(@)")
    half = zipped("x" * (1024**2 // 2))
    for _ in range(2):
        assert len(selector([half, half])) == 2
    with pytest.raises(NotSelectable, match="in one selection"):
        selector([half, half, zipped("x")])
    assert len(selector([half, half])) == 2


# -------------------------------------------------------------------------------- wrong expressions


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("", "it is empty"),
        ("a.[", "it ends too early, at column 4"),
        ("a b", "'b' is not allowed at column 3"),
        ("a.$", r"Unknown token \$ at column 3"),
        ("a['b']", "is not allowed at column"),
        ("[a, nope(b)]", r"there is no function nope\(\) \(column 5\)\. There are abs, "),
        ("a[?nope(b)]", r"there is no function nope"),
        ("map(&nope(b), c)", r"there is no function nope"),
        ("length(a, b)", r"length\(\) takes 1 argument\(s\), not 2"),
        ("from_json()", r"from_json\(\) takes 1 argument\(s\), not 0"),
        ("not_null()", r"not_null\(\) takes at least 1 argument\(s\), not 0"),
    ],
)
def test_a_wrong_expression_fails_at_once(expression: str, said: str) -> None:
    """Not at the first payload; the error has the expression, the place and what is wrong."""
    with pytest.raises(
        ValueError, match=f"^{re.escape(repr(expression))} is not a JMESPath expression: .*{said}"
    ):
        selector_of(expression)


async def aselect(payload: Any) -> Any: ...


@pytest.mark.parametrize("wrong", [None, 5, b"a", ["a"], aselect], ids=shown)
def test_what_is_not_a_selector(wrong: Any) -> None:
    """Neither text nor callable, or a callable whose result is never awaited."""
    with pytest.raises(ValueError, match="type a JMESPath expression, or a sync function"):
        selector_of(wrong)


# ------------------------------------------------------------------------------------ own functions


class Theirs(jmespath.functions.Functions):
    """A function is written as for jmespath itself."""

    def __init__(self, suffix: str = "!") -> None:
        self.suffix = suffix

    @jmespath.functions.signature({"types": ["string"]})
    def _func_shout(self, text: str) -> str:
        return text.upper() + self.suffix

    @jmespath.functions.signature({"types": []})
    def _func_length(self, value: Any) -> int:
        return -1


class OnOurs(Functions):
    @jmespath.functions.signature({"types": ["string"]})
    def _func_shout(self, text: str) -> str:
        return text.upper() + "!"


@pytest.mark.parametrize(
    "functions", [Theirs(), Theirs, OnOurs(), OnOurs], ids=["theirs", "class", "on ours", "class "]
)
def test_own_functions_stand_beside_ours(functions: Any) -> None:
    """In AWS Powertools they replace the built-in ones."""
    assert Expression("shout(from_json(@))", functions=functions)('"x"') == "X!"


def test_own_functions_keep_their_state_and_win() -> None:
    """Two objects of one class are two; if names collide, the project's function wins."""
    one, other = Theirs("?"), Theirs("...")
    assert Expression("shout(@)", functions=one)("x") == "X?"
    assert Expression("shout(@)", functions=other)("x") == "X..."
    assert Expression("length(@)", functions=one)("x") == -1
    assert selector_of("length(@)")("x") == 1


@pytest.mark.parametrize(
    ("expression", "in_parts"),
    [
        ("[a, b]", True),
        ("x.[a, b]", True),
        ("{a: a}", True),
        ("x | [a, b]", True),
        ("from_json(body).[a, b]", True),
        ("a", False),
        ("items[*].[a, b]", False),
        ("body", False),
        (len, True),
    ],
    ids=str,
)
def test_what_is_put_together_from_parts(expression: Any, *, in_parts: bool) -> None:
    """A part that is None is a missing part; in a value selected as it is, None may be a value."""
    assert selector_of(expression).in_parts is in_parts


@pytest.mark.parametrize(
    ("expression", "roots"),
    [
        ("body.a", {"body"}),
        ("[user, body.b]", {"user", "body"}),
        ("{k: query.a}", {"query"}),
        ("@.body.x", {"body"}),
        ("body[*].a", {"body"}),
        ("body[].a", {"body"}),
        ("body.*.a", {"body"}),
        ("body[?x == `1`].y", {"body"}),
        ("from_json(body.x).y", {"body"}),
        ("map(&inner, body.l)", {"body"}),
        ("a == b && !c || d", {"a", "b", "c", "d"}),
        ("body | [a, b]", {"body"}),
        ("@", set()),
        ("`1`", set()),
        (len, set()),
    ],
)
def test_the_names_that_a_payload_is_asked_for(expression: Any, roots: set[str]) -> None:
    """They make it possible to report a misspelt name at the declaration."""
    assert selector_of(expression).roots == roots


@pytest.mark.parametrize(
    ("expression", "whole"),
    [
        ("a.b", False),
        ("[a, b[0]]", False),
        ("@.a", False),
        ("a | @", False),
        ("map(&x, a)", False),
        ("@", True),
        ("*", True),
        ("*.id", True),
        ("[a, values(@)]", True),
        ("map(&x, @)", True),
        (len, True),
    ],
)
def test_what_depends_on_the_whole_payload(expression: Any, whole: bool) -> None:
    """Of such a payload nothing may be left out."""
    assert selector_of(expression).whole is whole


def test_what_is_missing_depends_on_what_was_selected() -> None:
    """A null inside a value that was selected whole is a value; a null in place of a part is
    missing.
    """
    payload = {"a": {"id": 1, "note": None}, "b": None}
    for expression, missing in {
        "a": False,
        "[a, b]": True,
        "a.[id, note]": True,
        "b": True,
        "c[*]": True,
    }.items():
        selector = selector_of(expression)
        assert selector.is_missing(selector(payload)) is missing, expression


class Message(Mapping[str, Any]):
    """A mapping with properties, as the classes of AWS Powertools' event sources are."""

    colour = "red"

    def __init__(self, **items: Any) -> None:
        self._items = items

    def __getitem__(self, name: str) -> Any:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    @property
    def message_id(self) -> Any:
        return self["messageId"]

    @cached_property
    def inner(self) -> Any:
        return Message(**self["inner"]) if "inner" in self._items else None


class Headers(dict[str, Any]):
    """A dict is what a client has sent, and what its class adds is not."""

    @property
    def encoding(self) -> str:
        return "utf-8"


@pytest.mark.parametrize("select", [simple, Expression], ids=["as a name", "as an expression"])
def test_properties_of_mappings(select: Callable[[str], Any]) -> None:
    """An item comes first; then what its class computes; no methods and constants, which are the
    same for all.
    """
    message = Message(messageId="m-1", keys=None)
    assert [
        select(name)(message) for name in ("message_id", "messageId", "keys", "colour", "_items")
    ] == [
        *("m-1", "m-1"),
        *(None, None, None),
    ]
    assert select("message_id")(Message()) is None  # its property raises KeyError
    assert select("encoding")(Headers()) is None


def test_a_name_is_an_expression() -> None:
    """What is known of a plain name is what JMESPath knows of it; anything else is parsed."""
    for name in ("a", "_a1", "true"):
        plain, parsed = simple(name), Expression(name)
        assert plain is not None
        facts = ("expression", "field", "roots", "whole", "in_parts")
        assert [getattr(plain, fact) for fact in facts] == [getattr(parsed, fact) for fact in facts]
    assert [simple(text) for text in ("a.b", '"a"', "@", "", " a", "1", "ä", "a-b")] == [None] * 8


def test_properties_within_an_expression() -> None:
    """They are looked up at each level."""
    assert selector_of("[message_id, inner.id]")(Message(message_id="own", inner={"id": 3})) == [
        "own",
        3,
    ]
