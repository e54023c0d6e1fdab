"""A policy refuses wrong values at once, and its message says what to write instead."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from django_idempotency.contrib.limits import FreshKeys, Suspect
from django_idempotency.contrib.observe import OBSERVE
from django_idempotency.core.dialects import Draft
from django_idempotency.core.policy import FIELDS as DECLARED
from django_idempotency.core.policy import Policy, seconds
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
    "seen_for": (
        [0, 5, timedelta(days=7)],
        [-5, None, False, "1d"],
        "0, or a positive number of seconds",
    ),
    "lease": (
        [30, timedelta(seconds=30)],
        [0, -1, None, "30", False],
        "a positive number of seconds",
    ),
    "longest_run": (
        [None, 600, timedelta(hours=1)],
        [0, -1, "600", True],
        "at most ten years, or None",
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
    "store_body": ([True, False], [None, 0], "True or False"),
    "max_request_body": (
        [None, 0, 1 << 25],
        [-1, 1.5, "32M", True],
        "a number of bytes, 0 or more, or None",
    ),
    "buffer_stream": ([True, False], [None, 0], "True or False"),
    "on_busy": (["reject", "wait"], ["block", None, True], '"reject" or "wait"'),
    "wait": ([5, timedelta(seconds=5)], [0, -5, None, True], "a positive number of seconds"),
    "on_failure": (["free", "hold", "forget"], ["release", None], '"free", "hold" or "forget"'),
    "on_store_failure": (["closed", "open"], ["fail", None, False], '"closed" or "open"'),
    "authorize_replay": (
        [None, max],
        [True, "path.to.function"],
        "a function of request and outcome, or None",
    ),
    "on_replay": (
        [None, max],
        [True, "path.to.function"],
        "a function of request and response, or None",
    ),
    "on_takeover": ([None, max], [True, "path.to.function"], "a function of a takeover, or None"),
    "undo_on": (
        [(), [ValueError], (ValueError, KeyError)],
        [None, ValueError, ["ValueError"], [SystemExit], [ValueError()]],
        "classes of exceptions",
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
def test_accepted(name: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A valid value is kept as it was given.

    Beside what it has an effect, `test_contradictions` says.
    """
    monkeypatch.setattr(Policy, "left_out", staticmethod(lambda _: MISSING))
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


@pytest.mark.parametrize("longest_run", [30, timedelta(seconds=29)])
def test_a_run_that_is_as_short_as_the_lease(longest_run: Any) -> None:
    """A lease that is never renewed needs no longest run."""
    with pytest.raises(ValueError, match="make longest_run longer than lease"):
        Policy(lease=30, longest_run=longest_run)
    Policy(lease=30, longest_run=31)
    Policy(longest_run=longest_run)


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
        on_takeover=never,
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
