"""The app."""

from __future__ import annotations

from .. import optional_app


class GraphQLConfig(optional_app.OptionalApp):
    """GraphQL views of graphene and strawberry. It adds no table."""

    name = "django_idempotency.contrib.graphql"
    label = "idempotency_graphql"
    verbose_name = "Idempotency: GraphQL"
    extends = "kind.GraphQL"
