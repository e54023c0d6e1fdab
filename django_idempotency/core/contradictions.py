"""Where two terms of a policy contradict each other, or its profile. Each says why, and what to type."""

from __future__ import annotations

from .key_formats import described, is_possible
from .policy import MIN_SHARED_KEY, STRANGERS, Policy, Resolved, shows_strangers
from .records import MISSING, Guarantee


def profile_contradiction(terms: Resolved) -> str | None:
    """Return why a policy cannot keep its profile, and what to type; `None` if it can."""
    profile = terms.profile
    if profile.carrier != "header" and terms.key is not None:
        return f"profile {profile.name!r} takes the key from the {profile.carrier}, so leave key out."
    if not is_possible(terms.key_format, profile.pattern, profile.max_length):
        return (
            f"profile {profile.name!r} refuses each key that is {described(terms.key_format)}, so leave key_format out, "
            "or replace() the pattern of the profile."
        )
    if profile.window and terms.ttl < (needed := profile.window + profile.ahead):
        return (
            f"profile {profile.name!r} accepts a retry for {needed:g} s, so make ttl ({terms.ttl:g}) at least that, or "
            "replace() the window of the profile."
        )
    if terms.anonymous == "shared" and profile.client_field is not None:
        return (
            f"profile {profile.name!r} tells clients apart by {profile.client_field}, which anyone can send, so "
            'anonymous="shared" would give a short key to strangers: identify the client with scope=…'
        )
    if terms.anonymous == "shared" and profile.max_length < MIN_SHARED_KEY:
        return (
            f'profile {profile.name!r} has keys of at most {profile.max_length} characters, and anonymous="shared" needs '
            f"{MIN_SHARED_KEY}: identify the client with scope=…"
        )
    return None


def async_contradiction(name: str, *, fix: str = "") -> str:
    """Return why something async cannot be "atomic". `name`: what it is called; `fix`: the sentence that says what to type."""
    return f'{name} is async, and no transaction can cover it: it cannot be "atomic". {fix}'.rstrip()


def flood_contradiction(terms: Resolved) -> str | None:
    """Return why a policy counts nothing by its `fresh_keys_by`, and what to type; `None` if it does."""
    if terms.fresh_keys_by is not None and terms.fresh_keys is None:
        return 'fresh_keys_by counts nothing without a limit. Type fresh_keys="60/m", or leave fresh_keys_by out.'
    return None


def shared_contradiction(terms: Resolved) -> str | None:
    """Return what a policy would reveal to clients that share a scope, and what to type; `None` if nothing."""
    if terms.suspect is not None and shows_strangers(terms):
        return f'suspect_action="refuse" with anonymous="shared": {STRANGERS}'
    return None


def takeover_contradiction(policy: Policy, terms: Resolved) -> str | None:
    """Return why a policy never asks its own `on_takeover`, and what to type; `None` if it does. `terms`: its fields."""
    own: object = policy.on_takeover
    if terms.guarantee is Guarantee.ATOMIC and own is not MISSING and own is not None:
        return (
            'on_takeover is never asked with guarantee="atomic", where nothing of a crashed owner is left. Leave it out, or '
            'type guarantee="lease".'
        )
    return None
