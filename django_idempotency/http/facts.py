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
from functools import lru_cache
from typing import Any

from django.http import HttpRequest

from .. import conf
from ..core.policy import Policy
from ..core.records import MISSING
from .keys import meta_name, parse_key

#: On a request: its facts.
_FACTS = "_idempotency_facts"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFacts:
    """One request, as the settings see it. A field of a policy goes before its setting."""

    method: str
    #: The name of the key's header in `request.META`, and the value that the client has sent; `None`: no header.
    header: str
    sent: object
    #: The settings METHODS (upper case), REQUIRED and KEY.
    methods: frozenset[str]
    required: bool
    selects: bool
    #: The settings that these facts were read from.
    settings: Mapping[str, Any]

    @property
    def carries_key(self) -> bool:
        """Does the request have the header, well formed or not?"""
        return self.sent is not None

    def read_key(self) -> str | None:
        """Return the key that the client has sent, or `None` without one. Raises `KeyMalformed`."""
        return None if self.sent is None else parse_key(self.sent)

    def may_have_key(self, policy: Policy) -> bool:
        """Does the request carry a key, or may a policy select one for it?"""
        chosen: object = policy.key
        return self.sent is not None or (self.selects if chosen is MISSING else chosen is not None)

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
    header = meta_name(settings.get("HEADER", conf.DEFAULTS["HEADER"]))
    facts = RequestFacts(
        method=request.method or "",
        header=header,
        sent=request.META.get(header),
        methods=_upper(tuple(settings.get("METHODS", conf.DEFAULTS["METHODS"]))),
        required=bool(settings.get("REQUIRED")),
        selects=settings.get("KEY") is not None,
        settings=settings,
    )
    setattr(request, _FACTS, facts)
    return facts


@lru_cache(maxsize=32)
def _upper(methods: tuple[str, ...]) -> frozenset[str]:
    return frozenset(name.upper() for name in methods)
