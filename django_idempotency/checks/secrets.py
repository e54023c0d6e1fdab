"""Check for guarded views whose responses look as if they contain secrets: those are stored, and can be replayed."""

from __future__ import annotations

import re
from typing import Any

from django.core.checks import CheckMessage

from .. import conf
from ..core.policy import Policy
from ..http.markers import rest_class, view_class
from ..http.views import route_of
from .catalogue import finding
from .guards import guards_of, methods_of
from .settings import check_settings
from .urlconf import Route, name_of, routes

#: A word of an address, of a route's name or of a view's name.
_SECRET = re.compile(
    r"(?:^|[^a-z])(?:(?:access|auth|refresh|api)?[-_]?(?:tokens?|jwt)|api[-_]?keys?|secrets?|credentials?"
    r"|otps?|totp|recovery[-_]?codes?)(?:$|[^a-z])"
)
#: Where a word of a name like ObtainAuthToken begins.
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
#: The classes of views that return tokens: REST framework's, simplejwt's, oauth2_provider's.
_MINTS = frozenset({"ObtainAuthToken", "TokenViewBase", "TokenView"})


def check_secrets(**_: Any) -> list[CheckMessage]:
    """Find the guarded views that look as if they mint secrets, unless their policy says whether they do."""
    if check_settings():
        return []
    found: dict[str, str] = {}
    for route in routes():
        if _stores(route) and _mints(route):
            found.setdefault(name_of(route.callback), route.path)  # of a ViewSet, the route that creates comes first
    return [finding("W096", view=f"{name} ({path})") for name, path in found.items()]


def _mints(route: Route) -> bool:
    cls = view_class(route.callback)
    if cls is not None and not _MINTS.isdisjoint(base.__name__ for base in cls.__mro__):
        return True
    own = any(route_of(route.callback, method).guards_itself for method in methods_of(route.callback))
    if not own and rest_class(route.callback) is None:
        return (
            False  # the middleware also guards the admin and other people's forms, which take secrets and return none
        )
    view = name_of(route.callback).rpartition(".")[2]
    names = (re.sub(r"<[^>]*>", "", route.path), route.name or "", view)
    return any(_SECRET.search(_HUMP.sub("-", name).lower()) for name in names)


def _stores(route: Route) -> bool:
    """Is the response of a guarded method stored, without the policy saying so?"""
    return any(policy is not None and _by_default(policy) for _, policy in guards_of(route))


def _by_default(policy: Policy) -> bool:
    return "store_body" not in policy.given() and bool(conf.get("STORE_BODY"))
