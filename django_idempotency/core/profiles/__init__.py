"""What the clients of an API expect on the wire: `Policy(profile="stripe")`, or a profile of your own by `replace()`."""

from .profile import Profile
from .shipped import PROFILES

__all__ = ["PROFILES", "Profile"]
