"""Limits on new keys: how many a client may make (`FreshKeys`), whether the same was sent with
another one (`Suspect`), and that the server issues them (`issued_keys`).
"""

from __future__ import annotations

from .fresh_keys import FreshKeys
from .suspect import Suspect

__all__ = ["FreshKeys", "Suspect"]
