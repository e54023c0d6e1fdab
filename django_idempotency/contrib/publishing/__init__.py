"""What clients may know: of the project's policies, as JSON, as a page, and in its OpenAPI schema;
of their own operations, by their keys (`by_key`); and of responses, in a browser (`cors`).
"""
