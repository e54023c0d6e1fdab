"""Idempotency for Django: safe retries of requests, functions and messages.

Importing this loads no model and no driver.
"""

from .core.policy import Policy
from .decorators import idempotency_exempt, idempotent, idempotent_form
from .functions import current_operation, deadline, derive_key, idempotent_function
from .realms import realm

__all__ = [
    "Policy",
    "current_operation",
    "deadline",
    "derive_key",
    "idempotency_exempt",
    "idempotent",
    "idempotent_form",
    "idempotent_function",
    "realm",
]
