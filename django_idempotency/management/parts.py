"""Commands that are read at night, commands made of parts, and what optional apps add to ours.

An app config says in `command_parts` what it adds: a command and the name of the part, such as
"idempotency_record history", → the path of the class that does it, relative to the app's.
"""

from __future__ import annotations

from argparse import SUPPRESS, RawDescriptionHelpFormatter
from collections.abc import Mapping
from inspect import cleandoc
from typing import Any

from django.apps import apps
from django.core.management.base import BaseCommand, CommandParser, DjangoHelpFormatter
from django.utils.module_loading import import_string


class HelpFormatter(RawDescriptionHelpFormatter, DjangoHelpFormatter):
    """Keeps the lines of a description, and shows Django's own options last."""


class HelpedCommand(BaseCommand):
    """A command whose docstring is its --help: what it does, and below the options when to type it,
    examples, and what its exit status means.
    """

    @classmethod
    def texts(cls) -> tuple[str, str]:
        """Return what stands above the options, and what below."""
        above, _, below = cleandoc(cls.__doc__ or "").partition("\n\n")
        return above, below

    def create_parser(self, prog_name: str, subcommand: str, **given: Any) -> CommandParser:
        parser = super().create_parser(
            prog_name, subcommand, formatter_class=HelpFormatter, **given
        )
        above, below = self.texts()
        parser.description = above
        parser.epilog = below
        return parser


def parts(command: str) -> dict[str, type[HelpedCommand]]:
    """Return what the installed apps add to a command, by name: the word of a subcommand; or the
    option, without its hyphens, that asks for it. It gets the options of the whole.
    """
    found = {}
    for config in apps.get_app_configs():
        for typed, path in getattr(config, "command_parts", {}).items():
            of, name = typed.split()
            if of == command:
                found[name] = import_string(f"{config.name}.{path}")
    return found


def add_options(command: str, parser: CommandParser) -> None:
    """Add the options of the parts that an option asks for."""
    for work in dict.fromkeys(parts(command).values()):
        work().add_arguments(parser)


def done_by_part(command: BaseCommand, name: str, options: Mapping[str, object]) -> bool:
    """Let the part do the work that the options ask for, if they ask for one."""
    for option, work in parts(name).items():
        if options.get(option):
            run(command, work, options)
            return True
    return False


def run(command: BaseCommand, work: type[HelpedCommand], options: Mapping[str, object]) -> None:
    """Let a part do the work of a command."""
    worker = work()
    worker.stdout = command.stdout
    worker.stderr = command.stderr
    if worker.requires_system_checks and not options.get("skip_checks"):
        worker.check()
    worker.handle(**options)


class Subcommands(HelpedCommand):
    """A command that is nothing but its subcommands: those that apps add."""

    requires_system_checks = ()
    #: As it is typed.
    name: str

    def works(self) -> dict[str, type[HelpedCommand]]:
        return parts(self.name)

    def add_arguments(self, parser: CommandParser) -> None:
        under = parser.add_subparsers(dest="subcommand", required=True, title="subcommands")
        for name, work in self.works().items():
            above, below = work.texts()
            sub = under.add_parser(
                name,
                help=" ".join(above.split()).partition(". ")[0].rstrip("."),
                description=above,
                epilog=below,
                formatter_class=RawDescriptionHelpFormatter,
            )
            work().add_arguments(sub)
            sub.add_argument(
                "-v",
                "--verbosity",
                type=int,
                choices=range(4),
                default=SUPPRESS,
                help="0: only errors, 1: as usual, 2: also how far it is.",
            )

    def handle(self, **options: Any) -> None:
        run(self, self.works()[options["subcommand"]], options)
