"""A dialect is a class of facts, which says at once what they cannot be, and of four methods."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Any

import pytest
from django.test import override_settings

from django_idempotency import Policy, conf
from django_idempotency.contrib.dialects import PayPal, Repeatability, Square
from django_idempotency.core.dialects import FACTS, NAMED, Dialect, Draft, Stripe
from django_idempotency.core.policy import profile_contradiction
from django_idempotency.core.records import MISSING
from django_idempotency.errors import InProgress, KeyMalformed, KeyTooShort
from tests.support.dialects import DIALECTS, SHIPPED, changed, typed


class Shop(Draft):
    max_length = 64


MADE = Shop()


def test_a_subclass() -> None:
    """It has its own facts, and those of its base; its name is that of the class."""
    assert (Shop.spelling, Shop.max_length, Draft.max_length) == ("quoted", 64, 255)
    assert (Shop.name, Draft.name, changed(Shop, name="ours").name) == ("shop", "draft", "ours")
    assert repr(MADE) == "Shop()"
    with pytest.raises(KeyMalformed, match="1 to 64 printable"):
        MADE.read_key(f'"{"k" * 65}"', {})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("carrier", "cookie"),
        ("field", "a b"),
        ("spelling", "any"),
        ("max_length", 0),
        ("max_length", 256),
        ("max_length", True),
        ("pattern", "["),
        ("field", "Content-Type"),  # WSGI has no HTTP_… for it, so no request would have a key
        ("field", "Authorization"),  # a secret would be stored
        ("requires_key", "yes"),
        ("client_field", "a b"),
        ("client_field", "cookie"),
        ("first_sent_field", "Host"),
        ("first_sent_field", "X-First-Sent"),  # without a window
        ("window", -1),
        ("statuses", {InProgress: 200}),
        ("statuses", {"in-progress": 409}),
        ("refuses_methods", 501),
        ("remembers", [99]),
        ("replays_as", ((201, 200),)),
        ("replays_as", {201: 99}),
        ("marker", ""),
        ("echoes", None),
        ("sets", ["X-Result"]),
        ("error_type", "json"),
        ("pages", None),
    ],
)
def test_what_it_cannot_be(field: str, value: Any) -> None:
    """The message names the class and the fact, and says what to type."""
    with pytest.raises(ValueError, match=rf"^Ours\.{field} = "):
        changed(Dialect, **{field: value})


@pytest.mark.parametrize("method", ["read_key", "status_of", "headers", "error_body"])
def test_a_method_that_cannot_be_called(method: str) -> None:
    """It is refused where the class is made, and not at the first request."""
    with pytest.raises(ValueError, match=rf"^Ours\.{method} is a sync method: def {method}\(self"):
        changed(Dialect, **{method: lambda self: None})


@pytest.mark.parametrize(
    ("name", "value", "meant"), [("max_lenght", 64, "max_length"), ("status", {}, "statuses")]
)
def test_a_fact_that_is_misspelt(name: str, value: Any, meant: str) -> None:
    """It would say nothing; a name of a project's own is left alone."""
    with pytest.raises(ValueError, match=rf"^Ours\.{name} is no fact. Did you mean {meant}\?"):
        changed(Dialect, **{name: value})
    changed(Dialect, names={1: "one"}, fields=("a", "b"))


def test_a_member_of_the_body_may_have_any_name() -> None:
    """What HTTP uses counts for headers."""
    assert changed(Dialect, carrier="body", field="host").field == "host"


def test_every_fact_is_checked() -> None:
    """No public attribute takes just anything, and each is what it may be."""
    public = {
        name
        for name, value in vars(Dialect).items()
        if not name.startswith("_") and not callable(value) and name != "own_headers"
    }
    assert public == FACTS.keys()
    assert all(accepts(getattr(Dialect, name)) for name, (accepts, _) in FACTS.items())


def test_statuses_of_a_class_count_for_its_subclasses() -> None:
    ours = changed(Stripe, statuses=MappingProxyType({**Stripe.statuses, KeyMalformed: 422}))()
    assert (ours.status_of(KeyTooShort), ours.status_of(KeyTooShort())) == (422, 422)
    assert ours.status_of(InProgress) == 409


def test_every_name() -> None:
    """The names of the core are those of its classes; the page types three more."""
    assert {name: each.name for name, each in NAMED.items()} == {name: name for name in NAMED}
    assert [each.name for each in SHIPPED][:3] == list(NAMED)
    assert list(typed()) == ["mastodon", "mollie", "gocardless"]


# ------------------------------------------------------------------------- a policy and its dialect


def test_which_dialect_a_policy_has() -> None:
    """The policy's own, else the setting: a name, a dialect, its class, or a dotted path.

    HEADER is the default's.
    """

    def found(policy: Policy, **settings: Any) -> tuple[str, str]:
        with override_settings(IDEMPOTENCY=settings):
            profile = conf.resolve(policy).profile
        return profile.name, profile.field

    assert found(Policy()) == ("default", "Idempotency-Key")
    assert found(Policy(), HEADER="X-Key") == ("default", "X-Key")
    assert found(Policy(profile="draft"), HEADER="X-Key", PROFILE=PayPal) == (
        "draft",
        "Idempotency-Key",
    )
    assert found(Policy(), PROFILE=PayPal) == ("paypal", "PayPal-Request-Id")
    ours = ("shop", "Idempotency-Key")
    assert [found(Policy(), PROFILE=each) for each in (MADE, Shop)] == [ours, ours]
    assert [found(Policy(profile=each)) for each in (MADE, Shop)] == [ours, ours]
    paths = [f"{__name__}.{name}" for name in ("MADE", "Shop")]
    assert [found(Policy(), PROFILE=each) for each in paths] == [ours, ours]


def test_an_unknown_name() -> None:
    """A name that no dialect of the core has is refused with those that there are, and with what
    to type for the others.
    """
    for name in ("strpe", "paypal", "ietf", "form"):
        with pytest.raises(ValueError, match=r'"draft", "stripe", .* profile=PayPal\(\) of'):
            Policy(profile=name)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"profile": Square(), "key": "body.id"}, "takes the key from the body, so leave key out"),
        ({"profile": Repeatability(), "ttl": 3600}, "make ttl (3600) at least that"),
        ({"profile": Repeatability(), "anonymous": "shared"}, "identify the client with scope=…"),
        ({"profile": DIALECTS["aip155"], "key_format": "uuid7"}, "so leave key_format out"),
        ({"profile": DIALECTS["iceberg"], "key_format": "uuid4"}, "so leave key_format out"),
        ({"profile": DIALECTS["aip155"], "key_format": "uuid4"}, None),
        ({"profile": DIALECTS["aip155"], "key_format": "uuid"}, None),
        ({"profile": DIALECTS["iceberg"], "key_format": "uuid7"}, None),
        ({"profile": DIALECTS["zalando"], "key_format": "uuid7"}, None),
        (
            {"profile": changed(Dialect, max_length=31), "key_format": "uuid"},
            "so leave key_format out",
        ),
        ({"profile": changed(Dialect, max_length=32), "key_format": "uuid"}, None),
        ({"profile": DIALECTS["aip155"], "anonymous": "shared"}, None),
        (
            {"profile": changed(Dialect, max_length=19), "anonymous": "shared"},
            "identify the client",
        ),
        *(({"profile": profile, "required": True}, None) for profile in DIALECTS.values()),
    ],
)
def test_a_policy_that_cannot_keep_its_profile(given: dict[str, Any], said: str | None) -> None:
    """A contradiction is said with what to type; the shipped profiles agree with the default
    policy.
    """
    found = profile_contradiction(conf.resolve(Policy(**given)))
    assert (found is None) if said is None else re.search(re.escape(said), str(found))


def test_any_policy_follows_the_settings() -> None:
    """A policy without a profile has none of its own."""
    assert Policy().given().get("profile", MISSING) is MISSING
