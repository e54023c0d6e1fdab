"""Selecting from a payload by expressions of JMESPath: what `key`, `validate` and `fingerprint` may
be.
"""

from __future__ import annotations

from .expressions import Expression
from .functions import Functions

__all__ = ["Expression", "Functions"]
