"""A store around another one, which keeps every response sealed. Needs the extra `encryption`."""

from .keyring import CannotOpen, Keyring, key_problem
from .store import SealedStore

__all__ = ["CannotOpen", "Keyring", "SealedStore", "key_problem"]
