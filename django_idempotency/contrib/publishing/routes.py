"""What guards each route, with the policy that its clients need to know."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from django.conf import settings
from django.contrib.admindocs.views import simplify_regex

from ... import Policy, conf
from ...checks.guards import guards_of
from ...checks.urlconf import is_of_admin, routes
from ...core.policy import ENFORCE
from ...http.markers import view_class
from .policies import published


@dataclass(frozen=True, kw_only=True)
class GuardedMethod:
    """A method of a route, and the policy that guards it."""

    path: str
    method: str
    policy: Policy
    #: Does the policy depend on more than method and action? Then `policy` is what the settings
    #: say.
    varies: bool
    callback: Any

    @cached_property
    def document(self) -> dict[str, Any]:
        """What is published of it, as JSON can express it.

        Raises `ValueError` if the policy contradicts the settings.
        """
        terms = published(self.policy, varies=self.varies)
        return {"path": self.path, "method": self.method, "varies": self.varies, **terms}


def guarded_methods() -> tuple[GuardedMethod, ...]:
    """Return each guarded method of each route, in the order in which Django tries the routes.

    It is found out once per process: that looks through the source of decorators and middlewares.
    """
    return _found(settings.ROOT_URLCONF, tuple(settings.MIDDLEWARE), repr(conf.project_settings()))


@lru_cache(maxsize=2)
def _found(*_: object) -> tuple[GuardedMethod, ...]:
    return tuple(_guarded())


def _guarded() -> Iterator[GuardedMethod]:
    seen = set()
    for route in routes():
        if is_of_admin(route.callback):
            continue
        path = re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", simplify_regex(route.path))
        if path in seen:
            continue  # an earlier route has it
        seen.add(path)
        for method, chosen in guards_of(route):
            policy = chosen or Policy()
            if conf.field(policy, "mode") == ENFORCE:  # which promises nothing
                yield GuardedMethod(
                    path=path,
                    method=method,
                    policy=policy,
                    varies=chosen is None,
                    callback=route.callback,
                )


def guarding(view: Any, method: str, path: str) -> GuardedMethod | None:
    """Return what guards a method of a class-based view at a path of a schema (`/charges/{id}/`),
    or `None`.
    """
    its = [
        each
        for each in guarded_methods()
        if view_class(each.callback) is type(view) and each.method == method
    ]
    return next(
        (each for each in its if _shape(each.path) == _shape(path)), its[0] if its else None
    )


def guarded_at(path: str, method: str) -> GuardedMethod | None:
    """Return what guards a method at a path of a schema (`/charges/{id}/`), or `None`."""
    shape = _shape(path)
    return next(
        (
            each
            for each in guarded_methods()
            if each.method == method and _shape(each.path) == shape
        ),
        None,
    )


def _shape(path: str) -> list[str]:
    """Return the constant parts of a path: a schema names its parameters in its own way."""
    parts = path.strip("/").split("/")
    return ["*" if part.startswith("{") else part for part in parts]
