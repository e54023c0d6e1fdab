"""Views of GraphQL, graphene's and strawberry's: a key guards mutations. Neither is imported until one is guarded."""
