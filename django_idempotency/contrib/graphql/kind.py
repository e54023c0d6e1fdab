"""Recognizes GraphQL views. Imports no GraphQL library."""

from __future__ import annotations

import inspect
from typing import Any

from ... import Policy
from ...api.requests import ViewKind
from ...http.kinds import Reason

#: The modules of view classes that handle GraphQL in `dispatch()`.
_MODULES = ("graphene_django.views", "strawberry.django.views")
_NAMES = ("GraphQLView", "AsyncGraphQLView")

RESOLVERS = Reason(
    "resolvers", "it is a GraphQL view, whose resolvers check access only when they run"
)


def is_strawberry(library: type[Any]) -> bool:
    """Is a class that `library_view()` returns one of strawberry's?"""
    return library.__module__ == _MODULES[1]


def library_view(cls: Any) -> type[Any] | None:
    """Return the graphene or strawberry class that a view class is or inherits from; `None` for any
    other.
    """
    bases = cls.__mro__ if inspect.isclass(cls) else ()
    return next(
        (base for base in bases if base.__module__ in _MODULES and base.__name__ in _NAMES), None
    )


class GraphQL(ViewKind):
    """The middleware leaves them alone: their resolvers check access, and a replay would run
    none.
    """

    packages = ("graphene_django", "strawberry")
    left = RESOLVERS
    called = "a GraphQL view"
    fix = "Put @idempotent(authorize_replay=…) on its class"
    handlers = ("post",)

    def owns(self, view: Any) -> bool:
        """Is it a class of graphene or strawberry?"""
        return library_view(view) is not None

    def guard_class(self, cls: type[Any], policy: Policy) -> type[Any] | None:
        """Return a subclass whose mutations are guarded."""
        from .views import guard  # not above: needs graphql-core, which such a class has loaded

        library = library_view(cls)
        return None if library is None else guard(cls, library, policy)
