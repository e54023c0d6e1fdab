"""Which views are GraphQL's, for the entry points that must know. Imports none of its libraries."""

from __future__ import annotations

import inspect
from typing import Any

#: Where the view classes that answer GraphQL in `dispatch()` come from.
_MODULES = ("graphene_django.views", "strawberry.django.views")
_NAMES = ("GraphQLView", "AsyncGraphQLView")


def library_view(cls: Any) -> type[Any] | None:
    """Return the class of graphene or strawberry that a view class is, or is made of; `None` for any other."""
    bases = cls.__mro__ if inspect.isclass(cls) else ()
    return next((base for base in bases if base.__module__ in _MODULES and base.__name__ in _NAMES), None)
