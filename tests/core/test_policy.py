"""A policy refuses wrong values at once, and its message says what to write instead."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from django_idempotency import (
    BufferedStreams,
    LongestRun,
    OnReplay,
    OnTakeover,
    StatusOnly,
    Tombstones,
    conf,
    idempotent_function,
)
from django_idempotency.contrib.limits import FreshKeys, Suspect
from django_idempotency.contrib.observe import OBSERVE
from django_idempotency.contrib.steps import UndoOn
from django_idempotency.core.dialects import Draft
from django_idempotency.core.policy import FIELDS as DECLARED
from django_idempotency.core.policy import RENAMED, Policy, seconds
from django_idempotency.core.records import MISSING, Guarantee
from django_idempotency.engine.extensions import Extension
from tests.support.dialects import DIALECTS

from ..support.naming import shown

#: Field → good values, bad values, and what the refusal says to write.
FIELDS: dict[str, tuple[list[Any], list[Any], str]] = {
    "mode": (["enforce", OBSERVE], ["observe", "off", None, True], "contrib.observe"),
    "required": ([True, False, "warn"], [None, 1, "yes"], 'True, False or "warn"'),
    "ttl": (
        [1, 0.5, 86400, timedelta(days=1), timedelta(days=3650), 3650 * 86400],
        # no time, not a number, a flag that is an int, endless
        [
            0,
            -1,
            None,
            "60",
            True,
            float("nan"),
            float("inf"),
            timedelta(0),
            timedelta(-1),
            timedelta(days=3651),
            3651 * 86400,
        ],
        "a positive number of seconds (or a timedelta), at most ten years",
    ),
    "lease": (
        [30, timedelta(seconds=30)],
        [0, -1, None, "30", False],
        "a positive number of seconds",
    ),
    "guarantee": (
        ["atomic", "lease", Guarantee.LEASE],
        ["Atomic", "steps", None, ""],
        '"atomic" or "lease"',
    ),
    "store": (["default", "redis"], ["", None, 1, b"default"], "an alias of STORES"),
    "scope": ([None, str], ["user", 1], "a function of the request, or None"),
    "realm": ([None, max], ["tenant-a", 7], "a function of the request, or None"),
    "anonymous": (["refuse", "shared"], ["allow", None, True], '"refuse" or "shared"'),
    "key": (
        [
            None,
            str,
            "body.order_id",
            "body",
            '[user, headers."x-order"]',
            "from_json(body.order).id",
        ],
        # a name that no request has, nothing, not a text
        ["order_id", "", ["body.order_id"], b"body", 5],
        (
            "a JMESPath expression over body, headers, method, path, query and user, a "
            "function of the request, or None"
        ),
    ),
    "key_format": (
        ["any", "uuid", "uuid4", "uuid7", "issued", r"[a-z]+-\d+", re.compile("x")],
        [None, "uuid5", "(", 7],
        '"any", "uuid", "uuid4", "uuid7", "issued", or a regular expression',
    ),
    "fingerprint": (
        ["request", "raw", "headers", str, "body.amount", "body", "[body.amount, query.currency]"],
        [None, "Raw", "header", "amount", "", ["raw"], b"raw"],
        (
            '"request", "raw", "headers", a JMESPath expression over body, headers, method, '
            "path, query and user, or a function"
        ),
    ),
    "keep": (
        [None, set(), {409}, [400, 409], "written", lambda response: True],
        [500, {500}, {"409"}, "409", {99}, True, "wrote"],  # a failure is never kept
        'a set of statuses below 500, "written"',
    ),
    "headers": (
        [None, [], ["ETag"], str.islower],
        ["ETag", b"ETag", [1], 1],
        "a list of header names",
    ),
    "max_body": (
        [None, 0, 1, 1 << 20],
        [-1, 1.5, "64k", True],
        "a number of bytes, 0 or more, or None",
    ),
    "max_request_body": (
        [None, 0, 1 << 25],
        [-1, 1.5, "32M", True],
        "a number of bytes, 0 or more, or None",
    ),
    "wait": ([0, 5, timedelta(seconds=5)], [-5, None, False], "0, or a positive number of seconds"),
    "on_failure": (["free", "hold", "forget"], ["release", None], '"free", "hold" or "forget"'),
    "on_store_failure": (["closed", "open"], ["fail", None, False], '"closed" or "open"'),
    "authorize_replay": (
        [None, max],
        [True, "path.to.function"],
        "a function of request and outcome, or None",
    ),
    "extensions": (
        [(), [FreshKeys("60/m")], (Suspect("body.card"), Extension())],
        [None, "60/m", FreshKeys("60/m"), [FreshKeys], ["shop.guards.FLOODS"]],
        'objects such as FreshKeys("60/m")',
    ),
    "methods": (
        [["POST"], ("post", "PATCH"), {"DELETE"}, ["MKCOL", "PROPPATCH", "PURGE"]],
        # a typo guards nothing
        [
            "POST",
            [1],
            None,
            [],
            ["POST", "get"],
            ["TRACE"],
            ["PSOT"],
            ["POST", "DELTE"],
            [""],
            [" POST"],
            ["PUTS"],
            ["PO\x00ST"],
        ],
        "a list of unsafe methods",
    ),
    "profile": (
        ["default", "stripe", DIALECTS["draft"], Draft],
        ["", "Stripe", "paypal", None, 5, int],
        '"stripe", ',
    ),
}


def rows(which: int) -> list[Any]:
    return [
        pytest.param(name, value, id=f"{name}={shown(value)}")
        for name, row in FIELDS.items()
        for value in row[which]
    ]


def test_every_field_has_its_row() -> None:
    """Every field has a row here, so none is accepted unchecked."""
    assert tuple(FIELDS) == tuple(DECLARED)


@pytest.mark.parametrize(("name", "value"), rows(0))
def test_accepted(name: str, value: Any) -> None:
    """A valid value is kept as it was given.

    Beside what it has an effect, `test_contradictions` says.
    """
    policy = Policy(**{name: value})
    assert dict(policy.given()) == {name: value}


@pytest.mark.parametrize(("name", "value"), rows(1))
def test_refused(name: str, value: Any) -> None:
    """An invalid value is refused with the field's name, the value and what to write."""
    with pytest.raises(ValueError, match=name) as refused:
        Policy(**{name: value})
    message = str(refused.value)
    assert message.startswith(f"Policy({name}={value!r}): {name} is ")
    assert FIELDS[name][2] in message
    assert message.endswith(".")


def test_an_unknown_field() -> None:
    """A misspelt field is refused, not ignored."""
    with pytest.raises(TypeError, match="requird"):
        Policy(requird=True)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("lease", "ttl", "fits"),
    [
        (30, 31, True),
        (30, 30, False),  # a record must outlive its own work
        (timedelta(minutes=1), 60, False),
        (timedelta(seconds=59), timedelta(minutes=1), True),
        (30, MISSING, True),  # the settings' ttl is compared when the two are combined
        (MISSING, 1, True),
    ],
)
def test_lease_and_ttl(lease: Any, ttl: Any, fits: bool) -> None:
    """A lease as long as the retention is refused."""
    if fits:
        Policy(lease=lease, ttl=ttl)
    else:
        with pytest.raises(ValueError, match="make lease shorter than ttl"):
            Policy(lease=lease, ttl=ttl)


@pytest.mark.parametrize("longest", [30, timedelta(seconds=29)])
def test_a_run_that_is_as_short_as_the_lease(longest: Any) -> None:
    """A lease that is never renewed needs no longest run."""
    with pytest.raises(ValueError, match="make LongestRun longer than lease"):
        Policy(lease=30, extensions=[LongestRun(longest)])
    Policy(lease=30, extensions=[LongestRun(31)])
    Policy(extensions=[LongestRun(longest)])


#: Option → good values, bad values, and what the refusal says to write.
OPTIONS: dict[Any, tuple[list[Any], list[Any], str]] = {
    Tombstones: (
        [None, 5, timedelta(days=7)],
        [-5, 0, False, "1d"],
        "at most ten years, or None",
    ),
    LongestRun: (
        [None, 600, timedelta(hours=1)],
        [0, -1, "600", True],
        "at most ten years, or None",
    ),
    OnReplay: ([None, max], [True, "path.to.function"], "a sync function of request and response"),
    OnTakeover: ([None, max], [True, "path.to.function"], "a function of a takeover, or None"),
    UndoOn: (
        [ValueError, KeyError],
        ["ValueError", SystemExit, ValueError(), (ValueError, KeyError)],
        "one by one, such as UndoOn(SoldOut, CardDeclined)",
    ),
}


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.__name__)
def test_an_option(option: Any) -> None:
    """It stands in a policy, or says what to write instead; and a policy has one of each."""
    good, bad, expected = OPTIONS[option]
    for value in good:
        made = option(value)
        policy = Policy(extensions=[made])
        for term, chosen in made.terms.items():
            assert policy.set_by_extension(term) is chosen
            with pytest.raises(ValueError, match=f"says {term} a second time"):
                Policy(extensions=[made, option(value)])
    for value in bad:
        with pytest.raises((TypeError, ValueError), match=re.escape(expected)):
            option(value)


def test_a_response_of_which_only_the_status_is_stored() -> None:
    """No other bound, and no stream, has an effect beside that."""
    with pytest.raises(ValueError, match=r"StatusOnly\(\)\]\) says max_body a second"):
        Policy(extensions=[StatusOnly()], max_body=9)
    with pytest.raises(ValueError, match=r"BufferedStreams\(\)\]\) says buffer_stream a"):
        Policy(extensions=[StatusOnly(), BufferedStreams()])
    Policy(extensions=[StatusOnly(False), BufferedStreams()], max_body=9)


@pytest.mark.parametrize("option", [StatusOnly, BufferedStreams])
@pytest.mark.parametrize("value", [None, "False", 0, 1])
def test_an_option_that_is_on_or_off(option: Any, value: Any) -> None:
    """Another value would be read as one of the two, and perhaps as the wrong one."""
    with pytest.raises(ValueError, match="type True or False"):
        option(value)


class Week(Tombstones):
    """An option of the project, whose class has a path for the settings."""

    def __init__(self) -> None:
        super().__init__(7 * 86400)


class Secret(StatusOnly):
    """Another one."""


class Both(Extension):
    """An extension of the project that sets two terms."""

    terms = MappingProxyType({"seen_for": 60, "buffer_stream": True})

    def __repr__(self) -> str:
        return "Both()"


@pytest.mark.parametrize(
    ("of_settings", "own", "terms"),
    [
        (Week(), [], {"seen_for": 7 * 86400}),
        (Week(), [Tombstones(None)], {"seen_for": 0}),
        (Week(), [Tombstones(60)], {"seen_for": 60}),
        (Tombstones(60), [Week()], {"seen_for": 7 * 86400}),
        (Secret(), [], {"store_body": False, "max_body": 0}),
        (Secret(), [StatusOnly(False)], {"store_body": True, "max_body": None}),
        (StatusOnly(), [Secret(False), BufferedStreams()], {"store_body": True}),
        (StatusOnly(), [StatusOnly(False), BufferedStreams()], {"buffer_stream": True}),
        (BufferedStreams(), [StatusOnly()], {"store_body": False, "buffer_stream": False}),
        (BufferedStreams(), [StatusOnly(False)], {"buffer_stream": True}),
        (BufferedStreams(), [Both()], {"seen_for": 60, "buffer_stream": True}),
        (UndoOn(KeyError), [UndoOn()], {"undo_on": ()}),
        (OnReplay(max), [OnReplay(None)], {"on_replay": None}),
    ],
    ids=repr,
)
def test_an_option_of_the_settings(of_settings: Any, own: list[Any], terms: Any) -> None:
    """The policy's own for the same replaces it, or takes it back, whichever class has made it."""
    with override_settings(IDEMPOTENCY={"EXTENSIONS": [of_settings], "GUARANTEE": "lease"}):
        resolved = conf.resolve(Policy(extensions=own))
    assert {name: getattr(resolved, name) for name in terms} == terms


@pytest.mark.parametrize(
    ("of_settings", "own", "says"),
    [
        (StatusOnly(), {"max_body": 1000}, "says max_body a second time"),
        (StatusOnly(), {"extensions": [BufferedStreams()]}, "says buffer_stream a second time"),
        (Both(), {"extensions": [Tombstones(60)]}, "says seen_for a second time"),
        (LongestRun(60), {"lease": 100}, "make LongestRun longer than lease"),
    ],
    ids=repr,
)
def test_an_option_of_the_settings_that_stands_against_a_policy(
    of_settings: Any, own: dict[str, Any], says: str
) -> None:
    """It is not left out in silence, which might store a secret. The message says where it is."""
    policy = Policy(guarantee="lease", **own)
    conf.resolve(policy)
    with (
        override_settings(IDEMPOTENCY={"EXTENSIONS": [of_settings]}),
        pytest.raises(ValueError, match=rf"{says}.*EXTENSIONS adds \[{type(of_settings).__name__}"),
    ):
        conf.resolve(policy)


@pytest.mark.parametrize("term", ["ttl", "required", "guarantee", "derive_secret", "nonsense"])
def test_a_term_that_no_extension_sets(term: str) -> None:
    """It would be lost, or said to one half of the code only."""
    setting = Extension()
    setting.terms = {term: 5.0}
    with pytest.raises(ValueError, match=f"sets {term}. What it may set is store_body,"):
        Policy(extensions=[setting])
    with (
        override_settings(IDEMPOTENCY={"EXTENSIONS": [setting]}),
        pytest.raises(ValueError, match=f"sets {term}"),
    ):
        conf.resolve(Policy())


class Lookalike:
    """Has some of what an extension has."""

    def before_claim(self, call: Any, payload: Any) -> None: ...


def test_an_object_that_is_no_extension() -> None:
    with pytest.raises(ValueError, match="extensions is objects such as FreshKeys"):
        Policy(extensions=[Lookalike()])


@pytest.mark.parametrize("option", [LongestRun(600), OnTakeover(print), UndoOn(KeyError)], ids=repr)
def test_an_option_without_effect(option: Any) -> None:
    """It needs a lease, beside the policy's field as beside the setting."""
    with pytest.raises(ValueError, match=r"means nothing with .* Type guarantee=\"lease\""):
        Policy(guarantee="atomic", extensions=[option])
    policy = Policy(extensions=[option])
    with pytest.raises(ValueError, match="means nothing with"):
        conf.resolve(policy)
    with override_settings(IDEMPOTENCY={"GUARANTEE": "lease"}):
        conf.resolve(policy)
    ((term, value),) = option.terms.items()
    with override_settings(IDEMPOTENCY={"EXTENSIONS": [option]}):
        assert getattr(conf.resolve(Policy(guarantee="atomic")), term) != value
        assert getattr(conf.resolve(Policy(guarantee="lease")), term) == value


@pytest.mark.parametrize("name", RENAMED)
def test_a_field_that_is_one_no_more(name: str) -> None:
    """Its error says what to type, of a policy and of a function, which has two of its own."""
    says = re.escape(f"no field {name} any more. Type {RENAMED[name]}")
    given: dict[str, Any] = {name: None}
    with pytest.raises(TypeError, match=says):
        Policy(**given)
    if name in ("on_replay", "on_takeover"):
        return
    refused: Any = idempotent_function
    with pytest.raises(
        TypeError, match=re.escape(f"takes no {name} any more. Type {RENAMED[name]}")
    ):
        refused(**given)


@pytest.mark.parametrize("name", RENAMED)
def test_a_setting_that_is_one_no_more(name: str) -> None:
    """What it asked for is not done in silence: nothing is guarded before it is typed anew."""
    with (
        override_settings(IDEMPOTENCY={name.upper(): False}),
        pytest.raises(ImproperlyConfigured, match=re.escape(f"Type {RENAMED[name]}.")),
    ):
        conf.resolve(Policy())


@pytest.mark.parametrize("key", ["body.order_id", str])
def test_a_selected_key_is_not_a_secret(key: Any) -> None:
    """A selected key that all users share is refused: anyone who guesses the payload would get the
    response.
    """
    with pytest.raises(
        ValueError, match=r'anonymous="shared"\): equal payloads of two clients .* scope='
    ):
        Policy(key=key, anonymous="shared")
    Policy(key=None, anonymous="shared")
    Policy(key=key, anonymous="refuse")


def test_strangers_are_not_shown_to_each_other() -> None:
    """A refusal names the other request; a report does not, nor one without facts to compare."""
    with pytest.raises(ValueError, match=r"learn of each other's requests\. Identify the client"):
        Policy(extensions=[Suspect("body.card", refuse=True)], anonymous="shared")
    Policy(extensions=[Suspect("body.card")], anonymous="shared")


def test_nothing_given() -> None:
    """An empty policy leaves everything to the settings."""
    assert dict(Policy().given()) == {}


def test_falsy_values_are_given() -> None:
    """False, zero and None count as given, not as "left out"."""
    said: dict[str, Any] = {"required": False, "max_body": 0, "scope": None, "keep": set()}
    assert dict(Policy(**said).given()) == said


def test_callables_are_not_called() -> None:
    """A policy stores functions; the entry points call them."""

    def never(*_: Any) -> Any:
        raise AssertionError("called")

    Policy(
        scope=never,
        key=never,
        fingerprint=never,
        keep=never,
        headers=never,
        authorize_replay=never,
        extensions=[OnReplay(never), OnTakeover(never)],
    )


def test_seconds() -> None:
    """A duration is read in seconds, including days and fractions."""
    assert [seconds(value) for value in (2, 0.5, timedelta(days=1, milliseconds=5))] == [
        2.0,
        0.5,
        86400.005,
    ]


def test_a_misspelt_field() -> None:
    """It is answered with the field that was meant, also by the decorator, which passes its
    arguments on.
    """
    with pytest.raises(TypeError, match="Did you mean required"):
        Policy(requierd=True)  # type: ignore[call-arg]
    assert replace(pickle.loads(pickle.dumps(Policy(ttl=5))), required=True) == Policy(
        ttl=5, required=True
    )
