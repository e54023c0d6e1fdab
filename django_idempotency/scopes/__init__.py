"""For the setting `SCOPE` and `Policy(scope=…)`: whose a key is, where no authenticated user sends it."""

from .functions import Public, public, session

__all__ = ["Public", "public", "session"]
