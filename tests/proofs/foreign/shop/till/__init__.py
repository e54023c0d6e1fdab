"""An app that stops a worker inside the transaction of an order, so that it can be killed there."""

from __future__ import annotations

from typing import Any


def customers_only(request: Any, outcome: Any) -> bool:
    """Show a stored response to any logged-in customer: the key belongs to that customer
    already.
    """
    return bool(request.user.is_authenticated)
