"""The records in Django's admin: read-only pages, and three interventions."""

from .pages import IdempotencyRecordAdmin

__all__ = ["IdempotencyRecordAdmin"]
