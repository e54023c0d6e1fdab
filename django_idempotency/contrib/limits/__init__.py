"""Limits on new keys: how many a client may make (`FreshKeys`), and whether the same was sent with
another one (`Suspect`).
"""

from __future__ import annotations

from .fresh_keys import FreshKeys
from .suspect import Suspect

__all__ = ["FreshKeys", "Suspect"]
