"""Calls to providers whose keys outlive the process that made them. A separate app, with its own table.

Transports are in `client.httpx`, `client.httpx2` and `client.requests`. Importing this loads no model.
"""

from .names import outgoing

__all__ = ["outgoing"]
