"""Patterns of routes in the settings, for views that a project cannot edit: EXEMPT, what the
middleware does not guard; and ROUTES, the policies of what it guards.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest
from django.utils.module_loading import import_string

from .. import conf
from ..core.policy import Policy
from ..errors import ConfigurationError
from .kinds import operations_of
from .markers import view_class

#: The prefixes of an entry, and what follows the colon.
KINDS = {
    "name": "a name of a route, with its namespaces",
    "namespace": "a namespace of URLs, and all inside of it",
    "module": "the module of a view, and all inside of it",
    "path": "a path, and all below it",
    "regex": "a regular expression, searched in the path",
    "function": "the dotted path of a function of the request",
}
_NOT_ALONE = "Type one of {}, such as 'namespace:admin'".format(
    ", ".join(f"{kind}:…" for kind in KINDS)
)


@dataclass(frozen=True, slots=True)
class Pattern:
    """One pattern, parsed. `test` is the compiled expression or the function of those that have
    one.
    """

    text: str
    kind: str
    value: str
    test: Any = None

    def covers(self, request: HttpRequest, callback: Any) -> bool:
        """Is a request to a view one of those?"""
        match self.kind:
            case "name":
                return getattr(request.resolver_match, "view_name", None) == self.value
            case "namespace":
                found = request.resolver_match
                return found is not None and self.has_namespace(tuple(found.namespaces))
            case "module":
                return self.has_module(callback)
            case "path":
                return within(request.path_info, self.value)
            case "regex":
                return self.test.search(request.path_info) is not None
            case _:
                return bool(self.test(request))

    def has_namespace(self, namespaces: tuple[str, ...]) -> bool:
        """Is it the namespace of a route, or one around it?"""
        return f"{':'.join(namespaces)}:".startswith(f"{self.value}:")

    def has_module(self, callback: Any) -> bool:
        """Does a view live in the module, or in one inside of it?"""
        views = (
            view_class(callback) or callback,
            *(operation.view_func for operation in operations_of(callback)),
        )
        return any(
            f"{getattr(view, '__module__', '')}.".startswith(f"{self.value}.") for view in views
        )


def within(path: str, above: str) -> bool:
    """Is a path this one, or below it?

    By segments: `/webhooks` is above `/webhooks/1/`, and not `/webhooks-old/`.
    """
    return f"{path.rstrip('/')}/".startswith(f"{above.rstrip('/')}/")


@lru_cache(maxsize=256)
def parsed(entry: Any) -> Pattern:
    """Parse a pattern.

    Raises `ValueError` with a sentence, and what importing a function raises.
    """
    if callable(entry):
        return _by_function(f"function:{getattr(entry, '__qualname__', repr(entry))}", entry)
    kind, colon, value = entry.partition(":") if isinstance(entry, str) else ("", "", "")
    if not colon or kind not in KINDS or not value:
        raise ValueError(f"{entry!r} has no known prefix. {_NOT_ALONE}")
    if kind == "function":
        return _by_function(entry, import_string(value))
    if kind == "path" and not value.startswith("/"):
        raise ValueError(f"{entry!r} is not a path from the root. Type {f'path:/{value}'!r}")
    if kind == "regex":
        try:
            return Pattern(entry, kind, value, re.compile(value))
        except re.error as error:
            raise ValueError(f"{entry!r} is not a regular expression: {error}") from error
    return Pattern(entry, kind, value)


def _by_function(text: str, function: Any) -> Pattern:
    if not callable(function) or iscoroutinefunction(function):
        raise ValueError(
            f"{text!r} is not a sync function of the request: a coroutine would count as true"
        )
    return Pattern(text, "function", text.partition(":")[2], function)


def exemptions() -> list[Pattern]:
    """Return the entries of EXEMPT.

    Raises `ConfigurationError` for a wrong entry, rather than ignoring it.
    """
    try:
        return [parsed(entry) for entry in conf.get("EXEMPT")]
    except (ValueError, TypeError, ImportError) as error:
        raise ConfigurationError(f'IDEMPOTENCY["EXEMPT"]: {error}') from error


def policies() -> tuple[tuple[Pattern, Policy], ...]:
    """Return the entries of ROUTES, in their order: the first one that covers a request counts.

    Raises `ConfigurationError` for a wrong one, rather than ignoring it.
    """
    try:
        return tuple(policy_at(entry, fields) for entry, fields in conf.get("ROUTES").items())
    except (ValueError, TypeError, AttributeError, ImportError) as error:
        raise ConfigurationError(f'IDEMPOTENCY["ROUTES"]: {error}') from error


def policy_at(entry: Any, fields: Any) -> tuple[Pattern, Policy]:
    """Return an entry of ROUTES: which requests, and their policy.

    Raises `ValueError` or `TypeError` with a sentence, and what importing the function of a field
    raises.
    """
    pattern = parsed(entry)
    if pattern.kind == "function":
        raise ValueError(
            f"{pattern.text!r} decides anew for each request, and a policy is that of a route"
        )
    if not isinstance(fields, dict):
        raise TypeError(
            f"{entry!r} has no dict of the fields of a policy, such as {{'required': True}}"
        )
    policy = Policy(**{name: conf.by_path(name, value) for name, value in fields.items()})
    profile = conf.profile_of(policy.profile)
    if profile.carrier == "body":
        raise ValueError(
            f"{entry!r} has the profile {profile.name!r}, and the middleware looks for no "
            "key in a body"
        )
    return pattern, policy
