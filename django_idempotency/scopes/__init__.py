"""For the setting `SCOPE` and `Policy(scope=…)`: whose a key is, if not the user's."""

from .functions import Marked, auth, before_user, public, session

__all__ = ["Marked", "auth", "before_user", "public", "session"]
