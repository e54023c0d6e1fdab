"""`on_takeover` of a view: what the project says about a request whose earlier owner crashed. Its policy asks for it."""

from .asking import Takeover

__all__ = ["Takeover"]
