"""What clients may know of the project's policies: as JSON, as a page, and in its OpenAPI
schema.
"""
