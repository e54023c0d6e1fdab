"""A small payments API. The demo, the tests and the docs all use it."""
