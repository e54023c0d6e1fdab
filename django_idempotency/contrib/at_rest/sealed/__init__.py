"""A store around another one, which keeps every response sealed. Needs the extra `encryption`."""

from .keyring import CannotOpen, Keyring, key_problem
from .store import Resealing, SealedStore

__all__ = ["CannotOpen", "Keyring", "Resealing", "SealedStore", "key_problem"]
