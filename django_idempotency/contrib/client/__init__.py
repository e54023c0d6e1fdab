"""Calls to providers whose keys outlive the process that made them.

A separate app, with its own table.

Clients are in `client.httpx`, an adapter in `client.requests`. Importing this loads no model.
"""

from .names import outgoing

__all__ = ["outgoing"]
