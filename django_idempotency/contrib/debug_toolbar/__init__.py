"""A panel for django-debug-toolbar: what the guard decided about a request, and why.

Needs django-debug-toolbar.
"""

from .panel import IdempotencyPanel

__all__ = ["IdempotencyPanel"]
