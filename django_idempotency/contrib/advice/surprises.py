"""Checks of guarded routes that work, and may surprise: replays that are refused, or show what they
should not.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from django.core.checks import CheckMessage
from django.db import connections

from ... import conf
from ...checks.guards import guards_of, methods_of
from ...checks.middleware import answering_exceptions, guards_every_view
from ...checks.settings import after_settings
from ...checks.urlconf import (
    Route,
    are_exempt,
    has_operations,
    name_of,
    open_handlers,
    routes,
    views,
)
from ...core.policy import Policy
from ...http.exemptions import exemptions
from ...http.following import unfollowed
from ...http.markers import below_api_view, handler_of, names_used, rest_class, view_class
from ...http.views import route_of
from ...stores.check_messages import Finding, and_more


class W077(Finding):
    """IdempotencyMiddleware refuses to replay %(view)s%(others)s: %(layer)s comes before the view,
    and cannot be asked again.

    Put @idempotent() below it, directly on the view or on the class (if it is the view, on that),
    so that it is asked each time; python manage.py idempotency_routes names all such views. Where
    you cannot edit them, type "REPLAY_THROUGH": ["dotted.path.of.the.decorator"] in IDEMPOTENCY, if
    that may be run again before a replay; or "AUTHORIZE_REPLAY": "dotted.path", and ask there; or
    name the view in "EXEMPT"; or %(silence)s.
    """


class W085(Finding):
    """%(other)s has a process_exception that may respond for a view that raised, outside the guard
    of %(view)s%(others)s: a replay gets Django's own response, and what a view wrote before it
    raised an exception of the project's own is rolled back.

    Put its responses into a decorator of the view's, below @idempotent(), or for REST framework
    into EXCEPTION_HANDLER: there the guard sees them. If it never responds for these views,
    %(silence)s.
    """


class W096(Finding):
    """%(view)s looks as if its responses contain secrets, and they are stored for a replay.

    Type store_body=False in its policy, store_body=True if it returns none, or put
    @idempotency_exempt on it if a second secret is better than none. If you cannot edit the view,
    name it in "EXEMPT".
    """


class W097(Finding):
    """%(view)s calls select_for_update(), and a request without a key has no transaction: it raises
    TransactionManagementError.

    Type required=True in its policy; or with transaction.atomic(): in the view, which is a
    savepoint under a key; or set ATOMIC_REQUESTS. If a transaction is open there already,
    %(silence)s.
    """


# ------------------------------------------------------------------------------------------ replays


@after_settings
def check_replays(**_: Any) -> Iterator[CheckMessage]:
    """Find the views whose replays are refused, grouped by the layer before them whose check cannot
    be repeated.
    """
    if not guards_every_view() or conf.get("AUTHORIZE_REPLAY") is not None:
        return
    before: defaultdict[str, list[str]] = defaultdict(list)
    for callback, leading in views():
        if not _seem_exempt(leading) and (layer := _unfollowed(callback)) is not None:
            before[layer].append(f"{name_of(callback)} ({leading[0].path})")
    for layer, found in before.items():
        yield W077(view=found[0], others=and_more(found), layer=layer)


#: The pieces of a pattern: an escaped character, a set, a count, a converter or a group's name, any
#: other character.
_PIECE = re.compile(r"\\.|\[(?:\\.|[^\]])+\]|\{[^}]*\}|<[^<>]*>|.")


def _seem_exempt(leading: list[Route]) -> bool:
    """Does EXEMPT cover these routes, if an expression that covers an example of one covers it all?

    Not of a route that may serve every path.
    """
    expressions = [entry.test for entry in exemptions() if entry.kind == "regex"]
    return all(
        are_exempt([route])
        or (not _serves_all(route) and any(test.search(example_of(route)) for test in expressions))
        for route in leading
    )


def _serves_all(route: Route) -> bool:
    """Does its path begin with a part that any text matches, also one with slashes?"""
    return re.match(r"/\W*(<path:|(\(\?P<\w+>|\()?\.[*+])", route.path) is not None


def example_of(route: Route) -> str:
    """Return a path like those that a route matches, with an `x` for each part that varies."""
    found = []
    depth = 0
    for piece in _PIECE.findall(route.path):
        if not depth and piece[0] not in ")^$*+?|{":
            varies = piece == "(" or (len(piece) > 1 and (piece[0] in "<[" or piece[1].isalnum()))
            found.append("x" if varies else piece[-1])
        depth += (piece == "(") - (piece == ")")
    return "".join(found)


def _unfollowed(callback: Any) -> str | None:
    whole = route_of(callback, "")
    if whole.exempt or (whole.kind is not None and whole.kind.left is not None):
        return None  # the middleware leaves them alone
    for name in open_handlers(callback):
        route = route_of(callback, name)
        if (
            not route.guards_itself
            and not route.exempt
            and (layer := unfollowed(callback, name)) is not None
        ):
            return layer
    return None


# --------------------------------------------------------------------------------------- exceptions


@after_settings
def check_exceptions(**_: Any) -> Iterator[CheckMessage]:
    """Find middlewares whose process_exception may respond outside of the guard of a view, its own
    or our middleware's.
    """
    if answering := answering_exceptions():
        guarded = [
            f"{name_of(callback)} ({leading[0].path})"
            for callback, leading in views()
            if _is_guarded(leading)
        ]
        for path in answering if guarded else []:
            yield W085(other=path, view=guarded[0], others=and_more(guarded))


def _is_guarded(leading: list[Route]) -> bool:
    """Is a view guarded on one of its routes? What has operations responds to exceptions itself."""
    return any(not has_operations(route.callback) and any(guards_of(route)) for route in leading)


# ------------------------------------------------------------------------------------------ secrets

#: A word of an address, of a route's name or of a view's name.
_SECRET = re.compile(
    r"(?:^|[^a-z])(?:(?:access|auth|refresh|api)?[-_]?(?:tokens?|jwt)|api[-_]?keys?|secrets?|credentials?"
    r"|otps?|totp|recovery[-_]?codes?)(?:$|[^a-z])"
)
#: Where a word of a name like ObtainAuthToken begins.
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
#: The classes of views that return tokens: REST framework's, simplejwt's, oauth2_provider's.
_MINTS = frozenset({"ObtainAuthToken", "TokenViewBase", "TokenView"})


@after_settings
def check_secrets(**_: Any) -> Iterator[CheckMessage]:
    """Find the guarded views that look as if they mint secrets, unless their policy says whether
    they do.
    """
    found: dict[str, str] = {}
    for route in routes():
        if _stores(route) and _mints(route):
            # Of a ViewSet, the route that creates comes first.
            found.setdefault(name_of(route.callback), route.path)
    for name, path in found.items():
        yield W096(view=f"{name} ({path})")


def _mints(route: Route) -> bool:
    cls = view_class(route.callback)
    if cls is not None and not _MINTS.isdisjoint(base.__name__ for base in cls.__mro__):
        return True
    own = any(
        route_of(route.callback, method).guards_itself for method in methods_of(route.callback)
    )
    if not own and rest_class(route.callback) is None:
        # the middleware also guards the admin and others' forms, which take secrets and return none
        return False
    view = name_of(route.callback).rpartition(".")[2]
    names = (re.sub(r"<[^>]*>", "", route.path), route.name or "", view)
    return any(_SECRET.search(_HUMP.sub("-", name).lower()) for name in names)


def _stores(route: Route) -> bool:
    """Is the response of a guarded method stored, without the policy saying so?"""
    return any(policy is not None and _by_default(policy) for _, policy in guards_of(route))


def _by_default(policy: Policy) -> bool:
    return "store_body" not in policy.given() and bool(conf.get("STORE_BODY"))


# -------------------------------------------------------------------------------------------- locks


@after_settings
def check_locks(**_: Any) -> Iterator[CheckMessage]:
    """Find the guarded views that lock rows, and whose requests without a key have no transaction
    for that.
    """
    if any(options["ATOMIC_REQUESTS"] for options in connections.settings.values()):
        return
    found: dict[str, str] = {}
    for route in routes():
        for method, policy in guards_of(route):
            if (
                policy is not None
                and conf.field(policy, "required") is not True
                and _locks(route.callback, method)
            ):
                found.setdefault(name_of(route.callback), route.path)
    for name, path in found.items():
        yield W097(view=f"{name} ({path})")


def _locks(callback: Any, method: str) -> bool:
    """Is select_for_update() seen in a view, and no atomic()?"""
    handler = handler_of(callback, method)
    work = below_api_view(handler) or handler or callback
    names = names_used(view_class(callback) or object, work)
    return "select_for_update" in names and "atomic" not in names
