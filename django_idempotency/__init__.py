"""Idempotency for Django: safe retries of requests, functions and messages.

Importing this loads no model and no driver.
"""

from .core.policy import Policy
from .decorators import idempotency_exempt, idempotent

__all__ = ["Policy", "idempotency_exempt", "idempotent"]
