"""The schema of guarded views, by drf-spectacular.

    REST_FRAMEWORK = {"DEFAULT_SCHEMA_CLASS":
    "django_idempotency.contrib.publishing.spectacular.AutoSchema"}

A project with a schema class of its own puts `IdempotencySchemaMixin` before drf-spectacular's
class in its bases.
"""

from __future__ import annotations

from typing import Any

from drf_spectacular.openapi import AutoSchema as SpectacularSchema
from drf_spectacular.plumbing import ComponentIdentity, ComponentRegistry, ResolvedComponent

from ...rest_framework.problems import has_own_handler
from .routes import guarding
from .schema import describe


class IdempotencySchemaMixin(SpectacularSchema):
    """Adds the key, the responses to it and the policy to each guarded operation; nothing that it
    says is replaced.
    """

    def get_operation(
        self, path: str, path_regex: str, path_prefix: str, method: str, registry: ComponentRegistry
    ) -> dict[str, Any] | None:
        operation = super().get_operation(path, path_regex, path_prefix, method, registry)
        guarded = guarding(self.view, self.method, path)
        if operation is None or guarded is None:
            return operation

        def refer(kind: str, name: str, component: dict[str, Any]) -> dict[str, Any]:
            identity = ComponentIdentity(name)  # type: ignore[no-untyped-call]
            resolved = ResolvedComponent(name, kind, component, identity)  # type: ignore[no-untyped-call]
            registry.register_on_missing(resolved)
            return dict(resolved.ref)

        documents = not has_own_handler(self.view)
        return describe(
            operation, guarded.policy, refer, documents=documents, varies=guarded.varies
        )


class AutoSchema(IdempotencySchemaMixin):
    """drf-spectacular's schema class with ours."""
