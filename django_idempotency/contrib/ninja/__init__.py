"""The integration with django-ninja: `@idempotent()` between `@api.post(…)` and the function.

Imports no ninja.
"""
