"""The conformance suite of the Universal Commerce Protocol, and what it leaves open, at a shop of
this project.
"""

from .program import main

__all__ = ["main"]
