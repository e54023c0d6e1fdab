"""GraphQL views of graphene and strawberry: a key guards mutations.

Neither is imported before a view is guarded.
"""
