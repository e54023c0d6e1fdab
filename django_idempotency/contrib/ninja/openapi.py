"""The schema of guarded operations, by django-ninja.

    from django_idempotency.contrib.ninja.openapi import NinjaAPI

    api = NinjaAPI()

A project with an API class of its own puts `IdempotencySchemaMixin` before ninja's class in its
bases.
"""

from __future__ import annotations

from typing import Any

import ninja
from django.urls import get_script_prefix
from ninja.openapi.schema import OpenAPISchema

from ...errors import IdempotencyError
from ..publishing.routes import guarded_at
from ..publishing.schema import describe
from .calls import handled_exceptions


class IdempotencySchemaMixin(ninja.NinjaAPI):
    """Adds the key, the responses to it and the policy to each guarded operation; nothing that it
    says is replaced.
    """

    def get_openapi_schema(self, **given: Any) -> OpenAPISchema:
        """Return ninja's schema with what guards each operation."""
        schema = super().get_openapi_schema(**given)
        components = schema["components"]

        def refer(kind: str, name: str, component: dict[str, Any]) -> dict[str, Any]:
            known = components.setdefault(kind, {}).setdefault(name, component)
            return {"$ref": f"#/components/{kind}/{name}"} if known == component else component

        own_handler = any(issubclass(cls, IdempotencyError) for cls in handled_exceptions(self))
        for path, methods in schema["paths"].items():
            route = f"/{path.removeprefix(get_script_prefix()).lstrip('/')}"
            for method, operation in methods.items():
                guarded = guarded_at(route, method.upper())
                if guarded is not None:
                    methods[method] = describe(
                        operation, guarded.policy, refer, documents=not own_handler
                    )
        return schema


class NinjaAPI(IdempotencySchemaMixin):
    """Ninja's API class with ours."""
