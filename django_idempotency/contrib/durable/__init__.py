"""Durable executions: work that its engine suspends, and restarts from the beginning hours later."""

from .naming import execution

__all__ = ["execution"]
