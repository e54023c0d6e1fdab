"""Tells clients the project's policies, as JSON, as a page, and in its OpenAPI schema; the state of
their own operations, by their keys (`by_key`); and, in a browser, the headers of a response
(`cors`).
"""
