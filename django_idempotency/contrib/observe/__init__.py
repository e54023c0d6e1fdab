"""`mode=OBSERVE`: the view runs unguarded, and what a guard would have done is reported."""

from __future__ import annotations

from .observing import OBSERVE

__all__ = ["OBSERVE"]
