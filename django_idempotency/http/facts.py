"""What a request says about its key, and what the settings say about such a request: read by the first entry point.

The facts stay on the request, and each later entry point takes them from there. They are read again if the method, the
header or the settings have changed since: a middleware or a view between two entry points may change the request, and a
test may send it again under other settings. A settings dict that is edited in place counts from the next request.
Whether idempotency is on is not among them: `key_to_guard()` asks that once, and only about a request that would be
guarded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl

from django.http import HttpRequest

from .. import conf
from ..core.policy import Policy
from ..core.profiles import Profile
from ..core.records import MISSING
from ..errors import KeyMalformed
from .keys import meta_name, of_client, parse_key, plain_key, require_timely

#: A policy that leaves everything to the settings.
ANY_POLICY = Policy()
#: On a request: its facts.
_FACTS = "_idempotency_facts"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RequestFacts:
    """One request, as the settings see it. A field of a policy goes before its setting."""

    method: str
    #: The profile of the settings.
    profile: Profile
    #: The name of its header in `request.META`, and the value that the client has sent; `None`: no header.
    header: str
    sent: object
    #: The settings METHODS (upper case), REQUIRED and KEY.
    methods: frozenset[str]
    required: bool
    selects: bool
    #: May it ask the middleware for a guard? That looks for no key in a body: most requests have none there.
    may_ask: bool
    #: The settings and the headers that these facts were read from.
    settings: Mapping[str, Any]
    meta: Mapping[str, Any]

    def profile_of(self, policy: Policy) -> Profile:
        """Return the profile in which a policy speaks to this request's client."""
        chosen: object = policy.profile
        return self.profile if chosen is MISSING else conf.profile_of(chosen, self.settings)

    def carries_key(self, policy: Policy = ANY_POLICY) -> bool:
        """Does the request have the header of a policy's profile, or the parameter, well formed or not?"""
        return self._carries(self.profile_of(policy))

    def _carries(self, profile: Profile) -> bool:
        plain = profile is self.profile and profile.carrier == "header"  # each keyless request comes here
        if (self.sent if plain else self.sent_in(profile)) is not None:
            return True
        return profile.first_sent_field is not None and self._header(profile.first_sent_field) is not None

    def sent_in(self, profile: Profile) -> object:
        """Return what the client has sent as the key of a profile; `None`: nothing, or it would be in the body."""
        match profile.carrier:
            case "header":
                return self.sent if profile is self.profile else self._header(profile.field)
            case "query":
                return _parameter(str(self.meta.get("QUERY_STRING", "")), profile.field)
        return None

    def _header(self, name: str) -> object:
        return self.meta.get(meta_name(name))

    def read_key(self, policy: Policy = ANY_POLICY) -> str | None:
        """Return the key that the client has sent, or `None` without one in the header or the query.

        Raises `KeyMalformed`, and `KeyExpired` or `KeyAhead` outside the window of the profile.
        """
        profile = self.profile_of(policy)
        sent = self.sent_in(profile)
        if profile.first_sent_field is not None:
            first_sent = self._header(profile.first_sent_field)
            if (sent is None) is not (first_sent is None):
                raise KeyMalformed(
                    f"Send the headers {profile.field} and {profile.first_sent_field} together, or neither."
                )
            if first_sent is not None:
                require_timely(first_sent, profile, datetime.now(timezone.utc))
        if sent is None:
            return None
        if profile.carrier == "query":
            return plain_key(sent, profile)
        return parse_key(sent, profile)

    def of_client(self, key: str, profile: Profile) -> str:
        """Return a key under the name of its client, if the profile has a header for that. Raises `KeyMalformed`."""
        return key if profile.client_field is None else of_client(key, self._header(profile.client_field), profile)

    def may_have_key(self, policy: Policy) -> bool:
        """Does the request carry a key, or may a policy select one for it, or find it in the body?"""
        profile = self.profile_of(policy)
        if self._carries(profile) or profile.carrier == "body":
            return True
        chosen: object = policy.key
        return self.selects if chosen is MISSING else chosen is not None

    def asks_for_guard(self, policy: Policy) -> bool:
        """Does the request carry a key, or does a policy select one for it, or refuse it without one?"""
        chosen: object = policy.required
        return self.may_have_key(policy) or bool(self.required if chosen is MISSING else chosen)

    def is_guarded_method(self, policy: Policy) -> bool:
        """Does a policy guard requests of this method?"""
        chosen: Any = policy.methods
        return self.method in (self.methods if chosen is MISSING else _upper(tuple(chosen)))


def facts_of(request: HttpRequest) -> RequestFacts:
    """Return the facts of a request: those that an entry point has read, unless they are out of date."""
    known: RequestFacts | None = getattr(request, _FACTS, None)
    settings = conf.project_settings()
    if (
        known is not None
        and known.settings is settings
        and known.method == request.method
        and known.sent == request.META.get(known.header)
    ):
        return known
    try:
        profile = conf.profile_of(MISSING, settings)
    except Exception:
        del settings  # see conf.resolve()
        raise
    header = meta_name(profile.field) if profile.carrier == "header" else ""
    sent, required, selects = request.META.get(header), bool(settings.get("REQUIRED")), settings.get("KEY") is not None
    elsewhere = selects or profile.carrier == "query" or profile.first_sent_field is not None
    facts = RequestFacts(
        method=request.method or "",
        profile=profile,
        header=header,
        sent=sent,
        methods=_upper(tuple(settings.get("METHODS", conf.DEFAULTS["METHODS"]))),
        required=required,
        selects=selects,
        may_ask=required or (profile.carrier != "body" and (sent is not None or elsewhere)),
        settings=settings,
        meta=request.META,
    )
    setattr(request, _FACTS, facts)
    return facts


def _parameter(query: str, name: str) -> object:
    """Return the value of a parameter of the query; `None`: it is not there. A list of several is no key."""
    values = [value for key, value in parse_qsl(query, keep_blank_values=True) if key == name]
    return values[0] if len(values) == 1 else values or None


@lru_cache(maxsize=32)
def _upper(methods: tuple[str, ...]) -> frozenset[str]:
    return frozenset(name.upper() for name in methods)
