"""The key of an HTML form.

`{% load idempotency %}` has the tag; other template languages call `idempotency_field()`.
"""

from .field import idempotency_field

__all__ = ["idempotency_field"]
