"""Steps of a view or function, each done once and remembered, and undone once.

An app of its own.
"""

from .doubt import InDoubt

__all__ = ["InDoubt"]
