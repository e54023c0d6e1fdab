"""Messages that are sent if, and only if, the transaction that wrote them commits.

A separate app, with its own table.

Importing this loads no model.
"""

from ...errors import BrokerUnavailable, OutsideTransaction
from .sending import send

__all__ = ["BrokerUnavailable", "OutsideTransaction", "send"]
