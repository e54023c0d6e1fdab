"""A backend of django.tasks that delivers at least once, as any queue does: this one always
twice.
"""

from __future__ import annotations

from typing import Any

try:
    from django.tasks.backends.immediate import ImmediateBackend
except ImportError:  # Django 5.2
    from django_tasks.backends.immediate import ImmediateBackend  # type: ignore[assignment]

__all__ = ["ImmediateBackend", "TwiceBackend"]


class TwiceBackend(ImmediateBackend):
    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Return the outcome of the second run."""
        super().enqueue(task, args, kwargs)
        return super().enqueue(task, args, kwargs)
