"""Messages that leave if, and only if, the transaction that wrote them commits. An app of its own, with its own table.

Importing this loads no model.
"""

from ..errors import BrokerUnavailable, OutsideTransaction
from .sending import send

__all__ = ["BrokerUnavailable", "OutsideTransaction", "send"]
