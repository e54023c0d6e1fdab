"""For the setting `SCOPE` and `Policy(scope=…)`: whose a key is, where no authenticated user sends it."""

from .functions import Public, auth, public, session

__all__ = ["Public", "auth", "public", "session"]
