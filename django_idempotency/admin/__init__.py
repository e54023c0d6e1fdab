"""The records in Django's admin: to read, and for the two things an operator may do to them."""

from .pages import IdempotencyRecordAdmin

__all__ = ["IdempotencyRecordAdmin"]
