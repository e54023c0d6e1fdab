"""Print alert rules for Prometheus, their tests, or a dashboard for Grafana."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from .... import monitoring

#: In the files of rules: what the link of an alert begins with.
_PLACE = "$RUNBOOKS"
_FILES = {"rules": "rules.yml", "rule-tests": "rule-tests.yml", "dashboard": "dashboard.json"}


class Command(BaseCommand):
    help = (
        "Print alert rules for Prometheus, tests of these rules for promtool, or a "
        "dashboard for Grafana. They read the "
        'figures of IDEMPOTENCY["METRICS"], and those of manage.py idempotency_stats '
        "--format textfile."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("what", choices=tuple(_FILES), help="What to print.")
        parser.add_argument(
            "--runbooks",
            default="https://runbooks.example/idempotency",
            metavar="URL",
            help="The page of your runbooks, to which each alert links, with its name in lower "
            "case as the fragment.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        text = files(monitoring).joinpath(_FILES[options["what"]]).read_text(encoding="utf-8")
        self.stdout.write(text.replace(_PLACE, options["runbooks"]), ending="")
