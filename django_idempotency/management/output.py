"""What our commands write: files, the text format of Prometheus, and who has typed them."""

from __future__ import annotations

import getpass
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
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
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8", newline="") as new:
            made = Path(new.name)
            new.write(text)
        made.chmod(mode)
        made.replace(path)
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror or error}.") from error
    finally:
        if made is not None:  # it is still there if it has not taken its place
            made.unlink(missing_ok=True)


def gauge(name: str, about: str, values: Iterable[tuple[Mapping[str, str], float]]) -> Iterator[str]:
    """Yield a gauge in the text format of Prometheus: its values, each with its labels."""
    full = f"django_idempotency_{name}"
    yield f"# HELP {full} {about}\n# TYPE {full} gauge\n"
    for labels, value in values:
        shown = ",".join(f'{label}="{escaped(text)}"' for label, text in labels.items())
        yield f"{full}{{{shown}}} {value}\n"


def escaped(label: str) -> str:
    """Return the value of a label as the text format wants it."""
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def operator() -> str:
    """Name the operating system user, and the user behind sudo."""
    try:
        user = getpass.getuser()
    except (ImportError, KeyError, OSError):  # a container without an entry for its user
        user = f"uid {os.getuid()}" if hasattr(os, "getuid") else "unknown"
    behind = os.environ.get("SUDO_USER")
    return plain(f"{user} (sudo by {behind})" if behind else user)
