"""AdCP's own storyboards of idempotency, at a seller of this project."""

from .program import main

__all__ = ["main"]
