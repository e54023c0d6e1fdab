"""Django REST framework's door."""

from .mixins import IdempotentViewMixin

__all__ = ["IdempotentViewMixin"]
