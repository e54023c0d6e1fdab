"""The integration with Django REST framework."""

from .mixins import IdempotentViewMixin

__all__ = ["IdempotentViewMixin"]
