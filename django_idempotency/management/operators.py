"""Who types a command, for the log."""

from __future__ import annotations

import getpass
import os

from ..inspection.terminal import plain


def operator() -> str:
    """Name the operating system user, and the user behind sudo."""
    try:
        user = getpass.getuser()
    except (ImportError, KeyError, OSError):  # a container without an entry for its user
        user = f"uid {os.getuid()}" if hasattr(os, "getuid") else "unknown"
    behind = os.environ.get("SUDO_USER")
    return plain(f"{user} (sudo by {behind})" if behind else user)
