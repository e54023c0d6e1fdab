"""HTML forms: `@idempotent_form`, and the key of a form.

`{% load idempotency %}` has the tag; other template languages call `idempotency_field()`.
"""

from .decorator import idempotent_form
from .dialect import Form
from .field import idempotency_field

__all__ = ["Form", "idempotency_field", "idempotent_form"]
