"""Our commands, and their help as a terminal prints it."""

from __future__ import annotations

import io
from contextlib import redirect_stdout, suppress

from django.core.management import get_commands, load_command_class
from django.core.management.base import BaseCommand

from django_idempotency.management.parts import Subcommands

#: Name → its app.
OURS = {
    name: str(app)
    for name, app in get_commands().items()
    if str(app).startswith("django_idempotency")
}


def loaded(name: str) -> BaseCommand:
    return load_command_class(get_commands()[name], name)


def typed(name: str) -> list[list[str]]:
    """Return what is typed for a command, and for each of its subcommands."""
    command = loaded(name)
    under = command.works() if isinstance(command, Subcommands) else ()
    return [[name], *([name, each] for each in under)]


def helped(words: list[str]) -> str:
    """Return what --help prints of a command, or of a subcommand."""
    parser = loaded(words[0]).create_parser("manage.py", words[0])
    out = io.StringIO()
    with redirect_stdout(out), suppress(SystemExit):
        parser.parse_args([*words[1:], "--help"])
    return out.getvalue()
