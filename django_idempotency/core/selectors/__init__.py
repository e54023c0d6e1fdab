"""Selecting a part of a payload: by a JMESPath expression, which walks Python objects as they are, or by a callable."""

from __future__ import annotations

from .functions import Functions
from .selector import Selector

__all__ = ["Functions", "Selector"]
