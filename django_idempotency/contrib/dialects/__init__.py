"""Dialects of other APIs: `Policy(profile=PayPal())`, or a subclass of one.

Each says what its API has published; where that is silent, our default holds.
"""

from __future__ import annotations

from ...api import Default, Dialect, Draft, Stripe
from .commerce import Acp, Adcp, Ucp
from .guidelines import Aip155, Iceberg, Repeatability, Zalando
from .payments import Adyen, PayPal, Square

__all__ = [
    "Acp",
    "Adcp",
    "Adyen",
    "Aip155",
    "Default",
    "Dialect",
    "Draft",
    "Iceberg",
    "PayPal",
    "Repeatability",
    "Square",
    "Stripe",
    "Ucp",
    "Zalando",
]
