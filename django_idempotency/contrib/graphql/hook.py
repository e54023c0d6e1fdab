"""Recognizes GraphQL views, for the other entry points. Imports no GraphQL library."""

from __future__ import annotations

import inspect
from typing import Any

#: The modules of view classes that handle GraphQL in `dispatch()`.
_MODULES = ("graphene_django.views", "strawberry.django.views")
_NAMES = ("GraphQLView", "AsyncGraphQLView")


def is_strawberry(library: type[Any]) -> bool:
    """Is a class that `library_view()` returns one of strawberry's?"""
    return library.__module__ == _MODULES[1]


def library_view(cls: Any) -> type[Any] | None:
    """Return the graphene or strawberry class that a view class is or inherits from; `None` for any other."""
    bases = cls.__mro__ if inspect.isclass(cls) else ()
    return next((base for base in bases if base.__module__ in _MODULES and base.__name__ in _NAMES), None)
