from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any
from unittest import mock


def get_basic_auth_header(user: str, password: str) -> dict[str, str]:
    """Return the header of HTTP Basic, as keyword arguments of a test client."""
    credentials = base64.b64encode(f"{user}:{password}".encode()).decode("ascii")
    return {"HTTP_AUTHORIZATION": f"Basic {credentials}"}


def spy_on(method: Callable[..., Any]) -> Any:
    """Return a stand-in for a method, which calls it and records how."""
    return mock.create_autospec(method, side_effect=method)
