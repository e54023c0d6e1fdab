"""The integration with Django REST framework."""

from .guarding import IdempotentViewMixin

__all__ = ["IdempotentViewMixin"]
