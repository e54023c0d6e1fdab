"""Find rows of a model of yours that may be one operation, done twice under different keys."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, time, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser
from django.db import DatabaseError
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime

from .....management.arguments import MOST_ROWS, duration, positive
from .....management.base import counted
from .....management.output import write_whole
from .....management.parts import HelpedCommand
from ...output import as_csv, as_json, as_table, as_textfile
from ...searching import Search, Suspect, Unsearchable, report, search_of, suspects

#: With --exit-code. An error is 1, and a wrong option 2.
FOUND = 3


class Command(HelpedCommand):
    """Find rows of a model with equal facts, close together, that were made under different
    idempotency keys: operations that may have been done twice. It only reads.

    when:
      A customer was charged twice, or a client has sent a new key with each retry; and each
      night from a cron job.

    examples:
      %(prog)s payments.Charge --same card,amount --within 5m
          List charges of one card and one amount within five minutes, of the last day.
      %(prog)s payments.Charge --same card,amount --within 5m --exit-code
          Do so from a script, which learns by the exit status if there are any.

    exit status:
      0    All was done.
      1    The database could not answer, or the model cannot be searched so.
      2    An option is wrong. Nothing was done.
      3    With --exit-code: there are suspects.
    """

    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("model", metavar="MODEL", help="The model to search, such as payments.Charge.")
        add(
            "--same",
            type=names,
            required=True,
            metavar="FIELDS",
            help="The facts that make two rows the same: fields, or paths such as "
            "card__fingerprint.",
        )
        add(
            "--within",
            type=duration,
            required=True,
            metavar="SPAN",
            help="At most this far apart: 90s, 5m, 2h, 1d.",
        )
        add(
            "--since",
            default="24h",
            metavar="WHEN",
            help="From: 24h (ago), yesterday, 2026-11-23, 2026-11-23T08:00.",
        )
        add(
            "--until",
            default="0s",
            metavar="WHEN",
            help="Rows before then, in the same way. Without it, now.",
        )
        add(
            "--timestamp",
            metavar="FIELD",
            help="When a row was made. Without it, the first with auto_now_add.",
        )
        add(
            "--key",
            metavar="FIELD",
            help="A row's key. Without it, idempotency_key, if the model has that.",
        )
        add(
            "--where",
            type=lookup,
            action="append",
            default=[],
            metavar="LOOKUP=VALUE",
            help="Only rows with status=paid, amount__gte=100. Of several, all must hold.",
        )
        add(
            "--database",
            metavar="ALIAS",
            help="Of DATABASES. Without it, where the router reads the model.",
        )
        add(
            "--limit",
            type=positive,
            default=10_000,
            metavar="ROWS",
            help="Read no more than these: 10,000.",
        )
        add(
            "--format",
            choices=("table", "json", "csv", "none"),
            default="table",
            help="A table; or JSON, a line each.",
        )
        add(
            "--output",
            type=Path,
            metavar="FILE",
            help="Write to this file, which only its owner may read.",
        )
        add(
            "--textfile",
            type=Path,
            metavar="FILE",
            help="Write the counts for Prometheus' node exporter, too.",
        )
        add("--exit-code", action="store_true", help="End with 3 if there are suspects.")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            search = asked(options)
            if not search.has_index() and options["verbosity"] > 0:
                self.stderr.write(
                    f"{search.model._meta.label}.{search.timestamp} has no index that "
                    "begins with it: the whole table "
                    f'is read. Add models.Index(fields=["{search.timestamp}"]).'
                )
            rows = search.rows(min(options["limit"] + 1, MOST_ROWS))  # one more: is there more?
        except (Unsearchable, ArgumentTypeError) as error:
            raise CommandError(str(error)) from error
        except DatabaseError as error:
            raise CommandError(
                f"The database could not answer: {' '.join(str(error).split())}"
            ) from error
        more = len(rows) > options["limit"]
        label = search.model._meta.label
        found = list(
            suspects(rows[: options["limit"]], model=label, names=search.same, since=search.since)
        )
        self.show(found, label, search.same, options)
        for each in found:
            report(search.model, each)
        count = sum(len(each.rows) for each in found)
        said = f"{counted(len(found), 'suspect')}, {count:,} rows of {label}."
        if more:
            said += (
                f" There are more: stopped after {options['limit']:,} rows, and the last "
                "suspect may lack some. "
                "Name more facts in --same, or raise --limit."
            )
        if options["exit_code"] and found:
            raise CommandError(said, returncode=FOUND)
        if more or options["verbosity"] > 0:
            self.stderr.write(said)

    def show(
        self, found: list[Suspect], label: str, facts: Sequence[str], options: dict[str, Any]
    ) -> None:
        """Write the report.

        The files come before the signals, whose receivers may take their time.
        """
        match options["format"]:
            case "json":
                text = "".join(as_json(found))
            case "csv":
                text = as_csv(found, facts)
            case "none":  # the signals and the metrics are the report
                text = ""
            case _:
                text = "".join(as_table(found))
        if options["output"] is not None:
            write_whole(options["output"], text)
        elif text:
            self.stdout.write(text, ending="")
        if options["textfile"] is not None:
            figures = "".join(as_textfile(found, model=label, names=facts))
            write_whole(options["textfile"], figures, mode=0o644)  # the collector is another user


def asked(options: dict[str, Any]) -> Search:
    """Return the search that the options ask for. Raises `Unsearchable`, or `ArgumentTypeError`."""
    since = moment(options["since"])
    until = moment(options["until"])
    if since >= until:
        raise Unsearchable(f"--since {options['since']} is not before --until {options['until']}.")
    entry = {name: options[name] for name in ("model", "same", "within", "timestamp", "key")}
    search = search_of({**entry, "using": options["database"]}, since=since, until=until)
    return replace(search, where=tuple(options["where"]))


def names(text: str) -> tuple[str, ...]:
    """Read a list of fields with commas between them."""
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    if "" in found:
        raise ArgumentTypeError(f"{text!r} is not a list of fields, such as card,amount.")
    return found


def lookup(text: str) -> tuple[str, str]:
    """Read LOOKUP=VALUE."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ArgumentTypeError(f"{text!r} is not a lookup, such as status=paid.")
    return name, value


def moment(text: str) -> datetime:
    """Read a moment: a span before now, "today" or "yesterday" (at midnight), a date, or a date
    with a time.

    Without an offset it is in the current time zone. It is aware if USE_TZ is set.
    """
    # As the project's times are.
    now = timezone.localtime() if settings.USE_TZ else datetime.now()  # noqa: DTZ005
    midnights = {"today": now.date(), "yesterday": now.date() - timedelta(days=1)}
    try:
        if text in midnights:
            return _as_stored(datetime.combine(midnights[text], time.min))
        if exact := parse_datetime(text):
            return _as_stored(exact)
        if day := parse_date(text):
            return _as_stored(datetime.combine(day, time.min))
        return now - timedelta(seconds=duration(text))
    except (ArgumentTypeError, ValueError, OverflowError) as error:
        words = "a span such as 24h, today, yesterday, 2026-11-23, or 2026-11-23T08:00"
        raise ArgumentTypeError(f"{text!r} is not a moment: {words}.") from error


def _as_stored(value: datetime) -> datetime:
    """Return a moment as the project's models have it: aware, or naive without USE_TZ."""
    if settings.USE_TZ:
        return timezone.make_aware(value) if timezone.is_naive(value) else value
    return timezone.make_naive(value) if timezone.is_aware(value) else value
