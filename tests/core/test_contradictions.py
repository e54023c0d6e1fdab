"""Each pair of fields of a policy: whether both may be said, and what is told if not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import RequestFactory, override_settings

from django_idempotency import StatusOnly, idempotent, idempotent_function
from django_idempotency.checks.routes import E030
from django_idempotency.checks.settings import check_settings
from django_idempotency.core.dialects import Dialect
from django_idempotency.core.policy import (
    CONTRADICTIONS,
    FIELDS,
    Contradiction,
    Policy,
    async_contradiction,
)
from django_idempotency.errors import ConfigurationError, KeyMissing
from django_idempotency.http.plan import plan_of, resolve_policy
from tests.support.dialects import DIALECTS

from .test_policy import FIELDS as VALUES


def test_what_is_async_cannot_be_atomic() -> None:
    """The check says the same sentence, with a hint of its own."""
    said = 'shop.pay is async, and no transaction can cover it: it cannot be "atomic".'
    assert async_contradiction("shop.pay") == E030(view="shop.pay").msg == said
    assert async_contradiction("shop.pay", fix="Type it.") == f"{said} Type it."


# ------------------------------------------------------------------------------------ all the pairs

#: Field → a character for each field above it. ".": whatever both say, each has its effect. "x":
#: with some values one of them has none, or both do harm, and the policy is refused when it is
#: made. "p": so it is, when its plan knows its profile.
DECISIONS = {
    "mode": "",
    "required": ".",
    "ttl": "..",
    "lease": "..x",
    "guarantee": "...x",
    "store": ".....",
    "scope": "......",
    "realm": ".......",
    "anonymous": "........",
    "key": "........x",
    "key_format": "..........",
    "fingerprint": "...........",
    "keep": "....x.......",
    "headers": ".............",
    "max_body": "..............",
    "max_request_body": "...............",
    "wait": "................",
    "on_failure": "....x............",
    "on_store_failure": "..................",
    "authorize_replay": "...................",
    "extensions": "....................",
    "methods": ".....................",
    "profile": ".xp.....ppp...........",
}
NAMES = list(FIELDS)
#: Values that show a contradiction, beside those of `test_policy`.
COMPULSORY = [each for each in DIALECTS.values() if each.requires_key]
MORE: dict[str, list[Any]] = {"lease": [86400], "profile": COMPULSORY}


def pairs(decision: str) -> Iterator[Any]:
    for name, row in DECISIONS.items():
        for other, decided in zip(NAMES, row, strict=False):
            if decided == decision:
                yield pytest.param(name, other, id=f"{name}-{other}")


def values(name: str) -> list[Any]:
    return [*VALUES[name][0], *MORE.get(name, [])]


def refusals(one: str, other: str) -> list[str]:
    """Return why a policy is refused that says nothing but these two."""
    found = []
    for first, second in product(values(one), values(other)):
        fields: dict[str, Any] = {one: first, other: second}
        try:
            Policy(**fields)
        except ValueError as error:
            found.append(str(error))
    return found


def test_each_pair_is_decided() -> None:
    """A new field has a row, and in it a decision for each of the others: none is accepted in
    silence.
    """
    assert list(DECISIONS) == NAMES
    assert [len(row) for row in DECISIONS.values()] == list(range(len(NAMES)))
    stated = {frozenset((each.field, each.other)) for each in CONTRADICTIONS}
    decided = {
        frozenset((name, other))
        for name, row in DECISIONS.items()
        for other, decision in zip(NAMES, row, strict=False)
        if decision == "x"
    }
    assert stated == decided


@pytest.mark.parametrize(("one", "other"), [*pairs("x")])
def test_a_pair_that_stands_against_each_other(one: str, other: str) -> None:
    """The policy is refused when it is made. The message names both, and says what to type."""
    found = refusals(one, other)
    assert 0 < len(found) < len(values(one)) * len(values(other))
    for message in found:
        assert re.match(rf"Policy\(({one}=.*, {other}|{other}=.*, {one})=.*\): ", message)
        assert re.search(r"Type |make |: scope=…", message)


@pytest.mark.parametrize(("one", "other"), [*pairs("."), *pairs("p")])
def test_a_pair_of_which_each_has_its_effect(one: str, other: str) -> None:
    """Nothing else is refused when it is made."""
    assert refusals(one, other) == []


@pytest.mark.parametrize(("one", "other"), [*pairs("p")])
def test_a_pair_that_the_profile_decides(one: str, other: str) -> None:
    """With some profile of those that are shipped the plan is refused; `test_dialect` has what it
    says.
    """
    narrow = {
        "anonymous": "repeatability",
        "ttl": "repeatability",
        "key": "square",
        "key_format": "aip155",
    }[other]
    value: Any = {"anonymous": "shared", "ttl": 60, "key": "body.id", "key_format": "uuid7"}[other]
    Policy(**{other: value})
    with pytest.raises(ConfigurationError, match="profile"):
        resolve_policy(Policy(**{one: DIALECTS[narrow], other: value}))


# ---------------------------------------------------------------------------- in two places, or one


#: Of each row of the table two values that stand against each other, and one for the other field
#: that does not.
CLASHES: dict[tuple[str, str, str], tuple[Any, Any, Any]] = {
    ("lease", "guarantee", "atomic"): (30, "atomic", "lease"),
    ("on_failure", "guarantee", "atomic"): ("hold", "atomic", "lease"),
    ("on_failure", "guarantee", "lease"): ("forget", "lease", "atomic"),
    ("keep", "guarantee", "lease"): ("written", "lease", "atomic"),
    ("profile", "required", "False"): (DIALECTS["acp"], False, True),
    ("lease", "ttl", "30"): (30, 30, 86400),
    ("key", "anonymous", "shared"): ("body.id", "shared", "refuse"),
}
#: What else a clash needs.
BESIDE: dict[str, dict[str, Any]] = {
    "lease": {"guarantee": "lease"},
}
ROWS = [
    pytest.param(row, *case, id=f"{row.field}-{row.other}-{name[2]}")
    for row, (name, case) in zip(CONTRADICTIONS, CLASHES.items(), strict=True)
]
IDLE = [each for each in ROWS if not each.values[0].against and each.values[0].field != "profile"]  # type: ignore[union-attr]


def beside(row: Contradiction) -> dict[str, Any]:
    return {} if not row.against else BESIDE.get(row.field, {})


def as_settings(**fields: Any) -> Any:
    return override_settings(IDEMPOTENCY={name.upper(): value for name, value in fields.items()})


def test_each_row_has_a_case() -> None:
    """They are in the order of the table."""
    assert [(row.field, row.other) for row in CONTRADICTIONS] == [
        (field, other) for field, other, _ in CLASHES
    ]


@pytest.mark.parametrize(("row", "value", "clash", "fit"), ROWS)
def test_said_in_one_policy(row: Contradiction, value: Any, clash: Any, fit: Any) -> None:
    """Both in one policy: it is refused when it is made; and a policy whose other field fits is
    not.
    """
    with pytest.raises(ValueError, match=rf"^Policy\({row.field}=.*, {row.other}=.*\): "):
        Policy(**{**beside(row), row.field: value, row.other: clash})
    given = {**beside(row), row.field: value, row.other: fit}
    plan_of(Policy(**given)).compile()


@pytest.mark.parametrize(("row", "value", "clash", "fit"), IDLE)
def test_no_effect_under_the_settings(row: Contradiction, value: Any, clash: Any, fit: Any) -> None:
    """The policy says one, the settings the other: it can be made, and its plan refuses it."""
    policy = Policy(**{row.field: value})
    with as_settings(**{row.other: fit}):
        plan_of(policy).compile()
    with as_settings(**{row.other: clash}), pytest.raises(ConfigurationError, match=row.field):
        plan_of(policy).compile()


@pytest.mark.parametrize(("row", "value", "clash", "fit"), IDLE)
def test_a_default_of_the_project(row: Contradiction, value: Any, clash: Any, fit: Any) -> None:
    """The settings say one for the policies that need it: a policy which says the other is none of
    them, and can be kept.
    """
    with as_settings(**{row.field: value}):
        plan_of(Policy(**{row.other: clash})).compile()
        assert [each for each in check_settings() if each.id == "django_idempotency.E087"] == []


@pytest.mark.parametrize("profile", COMPULSORY, ids=repr)
def test_an_api_that_demands_keys(profile: Dialect) -> None:
    """Its profile stands beside required=True, in a policy or in the settings; "warn" is on the way
    there, and is heard.
    """
    with pytest.raises(ConfigurationError, match="Type required=True, too"):
        plan_of(Policy(profile=profile)).compile()
    with pytest.raises(ValueError, match="Type required=True, too"):
        Policy(profile=type(profile), required=False)
    Policy(profile=profile, required="warn")
    with as_settings(required=True):
        plan_of(Policy(profile=profile)).compile()
    with as_settings(profile=profile):
        assert "Type required=True, too" in "".join(each.msg for each in check_settings())
    with as_settings(profile=profile, required=True):
        assert check_settings() == []
        plan_of(Policy(required=False, profile="default")).compile()


@pytest.mark.parametrize(
    ("settings", "fields"),
    [
        ({}, {"profile": DIALECTS["acp"]}),
        ({"profile": DIALECTS["acp"]}, {}),
        ({"profile": DIALECTS["acp"], "required": True}, {"required": False}),
        ({"guarantee": "lease"}, {"keep": "written"}),
        ({"guarantee": "lease"}, {"on_failure": "forget"}),
        ({}, {"on_failure": "hold"}),
        ({}, {"lease": 30}),
        ({"extensions": [StatusOnly()]}, {"max_body": 9}),
    ],
)
def test_no_request_runs(rf: RequestFactory, settings: Any, fields: dict[str, Any]) -> None:
    """One without a key neither, which would run unguarded under another policy."""

    def pay(request: Any) -> HttpResponse:
        raise AssertionError("the view has run")

    view = idempotent(**{"anonymous": "shared", **fields})(pay)
    with as_settings(**settings), pytest.raises(ConfigurationError, match=r"^Policy\("):
        view(rf.post("/"))


def test_a_function_has_no_profile() -> None:
    """A profile of the settings demands no keys of its calls."""

    @idempotent_function(key="order", key_prefix="no-profile")
    def charge(order: int | None) -> str:
        return "charged"

    with as_settings(profile=DIALECTS["acp"], required=True), pytest.raises(KeyMissing):
        charge(order=None)
    with as_settings(profile=DIALECTS["acp"]):
        assert charge(order=None) == "charged"


def test_settings_that_are_not_known_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy of a module of settings is judged by itself alone, and by its plan later."""
    monkeypatch.setattr(
        "django_idempotency.conf.django_settings", type("Unread", (), {"configured": False})
    )
    Policy(on_failure="hold")
    with pytest.raises(ValueError, match="on_failure"):
        Policy(on_failure="hold", guarantee="atomic")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"guarantee": "atomic", "on_failure": "hold"}, "guarantee"),
        ({"extensions": [StatusOnly()], "max_body": 9}, "max_body"),
        ({"extensions": [StatusOnly()], "serializer": (str, str)}, "serializer"),
        ({"jmespath_functions": type}, "jmespath_functions"),
        ({"jmespath_options": object(), "key": min}, "jmespath_options"),
    ],
)
def test_of_a_function(given: dict[str, Any], says: str) -> None:
    """A guarded function is refused what has no effect, too, when it is decorated."""
    with pytest.raises(ValueError, match=says):
        idempotent_function(key_prefix="contradictory", **given)(lambda order: order)
