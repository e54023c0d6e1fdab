"""Expressions of JMESPath, which select from a payload: `key`, `validate` and `fingerprint` take
them.
"""

from __future__ import annotations

from .compiled import Expression
from .functions import Functions

__all__ = ["Expression", "Functions"]
