"""Durable executions: work that its engine suspends, and restarts from the beginning hours
later.
"""

from .suspending import execution

__all__ = ["execution"]
