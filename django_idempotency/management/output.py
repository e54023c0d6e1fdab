"""Files that our commands write, and who has typed the command."""

from __future__ import annotations

import getpass
import os
import tempfile
from pathlib import Path

from django.core.management.base import CommandError

from ..inspection.terminal import plain


def write_whole(path: Path, text: str, *, mode: int = 0o600) -> None:
    """Write a file so that a reader sees the old text or the new one. Raises `CommandError`.

    A pipe or a device, such as /dev/null, is refused: a file would take its place.
    """
    made: Path | None = None
    try:
        if path.exists() and not path.is_file():
            raise CommandError(f"{path} is not a file.")
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, delete=False, encoding="utf-8", newline=""
        ) as new:
            made = Path(new.name)
            new.write(text)
        made.chmod(mode)
        made.replace(path)
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror or error}.") from error
    finally:
        if made is not None:  # it is still there if it has not taken its place
            made.unlink(missing_ok=True)


def operator() -> str:
    """Name the operating system user, and the user behind sudo."""
    try:
        user = getpass.getuser()
    except (ImportError, KeyError, OSError):  # a container without an entry for its user
        user = f"uid {os.getuid()}" if hasattr(os, "getuid") else "unknown"
    behind = os.environ.get("SUDO_USER")
    return plain(f"{user} (sudo by {behind})" if behind else user)
