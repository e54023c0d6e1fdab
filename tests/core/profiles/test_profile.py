"""A profile is data, which says at once what it cannot be."""

from __future__ import annotations

import re
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest
from django.test import override_settings

from django_idempotency import Policy, conf
from django_idempotency.contrib.dialects import PROFILES, REPEATABILITY, SQUARE
from django_idempotency.core.policy import profile_contradiction
from django_idempotency.core.profiles import DEFAULT, IETF, SHIPPED, Profile
from django_idempotency.core.records import MISSING

OF_A_PROJECT = replace(IETF, name="shop", max_length=64)


def test_it_is_frozen_and_replaced() -> None:
    """A profile is changed by `replace()`, which checks the new value."""
    assert (OF_A_PROJECT.spelling, OF_A_PROJECT.max_length, IETF.max_length) == ("quoted", 64, 255)
    with pytest.raises(FrozenInstanceError):
        IETF.max_length = 64  # type: ignore[misc]
    with pytest.raises(ValueError, match="max_length is a number from 1 to 255"):
        replace(IETF, max_length=256)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("carrier", "cookie"),
        ("field", "a b"),
        ("spelling", "any"),
        ("max_length", 0),
        ("max_length", True),
        ("pattern", "["),
        ("field", "Content-Type"),  # WSGI has no HTTP_… for it, so no request would have a key
        ("field", "Authorization"),  # a secret would be stored
        ("client_field", "a b"),
        ("client_field", "cookie"),
        ("first_sent_field", "Host"),
        ("first_sent_field", "X-First-Sent"),  # without a window
        ("window", -1),
        ("missing_status", 200),
        ("unsupported_status", 302),
        ("remembers", [99]),
        ("replays_as", ((201,), "x")),
        ("marker", ""),
        ("echoes", None),
        ("retry_headers", ("X-Retry",)),
        ("errors", "xml"),
    ],
)
def test_what_it_cannot_be(field: str, value: Any) -> None:
    """The message names the field, and says what to type."""
    with pytest.raises(ValueError, match=f"{field}"):
        Profile(**{"name": "shop", field: value})


def test_a_member_of_the_body_may_have_any_name() -> None:
    """What HTTP uses counts for headers."""
    assert Profile(name="shop", carrier="body", field="host").field == "host"


def test_every_field_is_checked() -> None:
    """No field takes just anything."""
    assert all(
        field.metadata["expected"] and callable(field.metadata["accepts"])
        for field in fields(Profile)
    )


def test_every_shipped_profile_is_found_by_its_name() -> None:
    """The core's names are those of the dialects, in their order, and each is found by the
    settings.
    """
    assert [profile.name for profile in PROFILES.values()] == list(PROFILES) == list(SHIPPED)
    assert [conf.profile_of(name, {}) for name in SHIPPED] == list(PROFILES.values())


# ------------------------------------------------------------------------- a policy and its profile


def test_which_profile_a_policy_has() -> None:
    """The policy's own, else the setting: a name, a profile, or a dotted path.

    HEADER is the default profile's.
    """

    def found(policy: Policy, **settings: Any) -> tuple[str, str]:
        with override_settings(IDEMPOTENCY=settings):
            profile = conf.resolve(policy).profile
        return profile.name, profile.field

    assert found(Policy()) == ("default", "Idempotency-Key")
    assert found(Policy(), HEADER="X-Key") == ("default", "X-Key")
    assert found(Policy(profile="ietf"), HEADER="X-Key", PROFILE="paypal") == (
        "ietf",
        "Idempotency-Key",
    )
    assert found(Policy(), PROFILE="paypal") == ("paypal", "PayPal-Request-Id")
    assert (
        found(Policy(), PROFILE=OF_A_PROJECT)
        == found(Policy(profile=OF_A_PROJECT))
        == ("shop", "Idempotency-Key")
    )
    assert found(Policy(), PROFILE=f"{__name__}.OF_A_PROJECT") == ("shop", "Idempotency-Key")


def test_an_unknown_name() -> None:
    """A name that no profile has is refused with those that there are."""
    with pytest.raises(ValueError, match='"stripe", '):
        Policy(profile="strpe")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"profile": SQUARE, "key": "body.id"}, "takes the key from the body, so leave key out"),
        ({"profile": REPEATABILITY, "ttl": 3600}, "make ttl (3600) at least that"),
        ({"profile": REPEATABILITY, "anonymous": "shared"}, "identify the client with scope=…"),
        ({"profile": "aip155", "key_format": "uuid7"}, "so leave key_format out"),
        ({"profile": "iceberg", "key_format": "uuid4"}, "so leave key_format out"),
        ({"profile": "aip155", "key_format": "uuid4"}, None),
        ({"profile": "aip155", "key_format": "uuid"}, None),
        ({"profile": "iceberg", "key_format": "uuid7"}, None),
        ({"profile": "zalando", "key_format": "uuid7"}, None),
        (
            {"profile": replace(DEFAULT, max_length=31), "key_format": "uuid"},
            "so leave key_format out",
        ),
        ({"profile": replace(DEFAULT, max_length=32), "key_format": "uuid"}, None),
        ({"profile": "aip155", "anonymous": "shared"}, None),
        (
            {"profile": replace(DEFAULT, max_length=19), "anonymous": "shared"},
            "identify the client",
        ),
        *(({"profile": profile, "required": True}, None) for profile in PROFILES),
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
