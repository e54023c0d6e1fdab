"""Finish outgoing calls whose process died. Several may run."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack, closing
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import DatabaseError, Error, router

from ...management.arguments import duration, positive
from ...management.base import ProgressCommand, counted
from .lookup import end_forgotten
from .models import OutgoingCall
from .providers import provider
from .resuming import Resumed, due, expired, paged, resume
from .rules import CallState

#: The most reasons, and the most calls, that are printed.
MOST_REASONS = 5
MOST_LINES = 50


class Calls(ProgressCommand):
    """List outgoing calls whose process died. With --send they are sent again with their keys,
    and those whose key their provider may have forgotten are held for a person. A step's
    calls are sent by its next attempt only.

    when:
      From a cron job with --send; and by hand after a host has died, or when a provider was
      away for long. Several may run at once.

    examples:
      %(prog)s
          List the calls that nobody has sent for five minutes.
      %(prog)s --send --limit 100
          Send at most 100 of them again.
      %(prog)s --send --provider stripe --unanswered
          Send those of one provider, also where the process gave up and said so.

    exit status:
      0    All was done.
      1    Calls are left or held: decide about those that are held in the admin.
      2    An option is wrong. Nothing was done.
    """

    requires_system_checks = "__all__"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--provider", metavar="ALIAS", help='In IDEMPOTENCY["PROVIDERS"]; all.')
        parser.add_argument(
            "--older-than",
            type=duration,
            default=300.0,
            metavar="TIME",
            help="Only calls that nobody has sent for this long; 5m. Longer than the deadline "
            "of your transports.",
        )
        parser.add_argument(
            "--limit", type=positive, metavar="CALLS", help="Send no more than these; all."
        )
        parser.add_argument(
            "--unanswered",
            action="store_true",
            help="Also calls whose process gave up, and said so to its caller.",
        )
        parser.add_argument(
            "--send", action="store_true", help="Send them; otherwise they are listed."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        self.begin(options)
        self.using = router.db_for_write(OutgoingCall)
        self.limit: int | None = options["limit"]
        self.counted = Counter[Resumed]()
        self.reasons = Counter[str]()
        where = {
            "using": self.using,
            "older": timedelta(seconds=options["older_than"]),
            "alias": options["provider"],
        }
        try:
            if not options["send"]:
                self.list(due(**where, unanswered=options["unanswered"]))
                return
            with ExitStack() as clients:
                self.hold(where)
                self.resume(where, clients, unanswered=options["unanswered"])
        except KeyboardInterrupt:
            self.end_progress()
            raise CommandError(f"Interrupted. {self.so_far()}", returncode=130) from None
        except Error as error:
            self.end_progress()
            raise CommandError(
                f"The calls in {self.using!r} cannot be read. Is the table migrated? "
                f"{error}\n{self.so_far()}"
            ) from error
        self.end_progress()
        self.report()

    def hold(self, where: dict[str, Any]) -> None:
        """Hold what its provider may have forgotten, however its process ended, unless `LOOKUP`
        finds it.
        """
        for call in expired(**where):
            try:
                state = end_forgotten(call, self.using)
            except DatabaseError:
                raise
            except Exception as error:  # noqa: BLE001 - one call that cannot be judged keeps no other from it
                self.reasons[f"{call.provider}: {type(error).__name__}: {error}"] += 1
                self.counted[Resumed.LEFT] += 1
                continue
            if state:
                self.counted[Resumed.HELD if state is CallState.HELD else Resumed.FINISHED] += 1

    def resume(self, where: dict[str, Any], clients: ExitStack, *, unanswered: bool) -> None:
        """Send one call after the other. One that another worker takes first is its own.

        One that cannot even be sent does not count towards the limit: it is the oldest next time,
        too, and would keep the others from being sent.
        """
        known: dict[str, Any] = {}
        unsent = 0
        for call in paged(
            due(**where, unanswered=unanswered).filter(operation="").defer("response")
        ):
            if (
                self.limit is not None
                and self.counted.total() - self.counted[Resumed.HELD] - unsent >= self.limit
            ):
                break
            outcome = self.outcome(call, known, clients)
            unsent += outcome is Resumed.LEFT and not self.has_moved(call)
            self.counted[outcome] += 1
            self.progress()

    def has_moved(self, call: OutgoingCall) -> bool:
        """Was a call sent, so that others are older now?"""
        return (
            not OutgoingCall.objects.using(self.using)
            .filter(pk=call.pk, last_sent=call.last_sent)
            .exists()
        )

    def outcome(self, call: OutgoingCall, known: dict[str, Any], clients: ExitStack) -> Resumed:
        """Send a call, and say what became of it.

        What keeps it from being sent is one of the reasons.
        """
        try:
            of = provider(call.provider)
            if call.provider not in known:
                known[call.provider] = clients.enter_context(closing(of.new_client()))
            return resume(call, known[call.provider], using=self.using)
        except Exception as error:  # noqa: BLE001 - the project's client, the network, its keys
            self.reasons[f"{call.provider}: {type(error).__name__}: {error}"] += 1
            return Resumed.LEFT

    # --------------------------------------------------------------------------------------- output

    def list(self, found: Any) -> None:
        for call in found.defer("request", "response")[:MOST_LINES]:
            whose = "  its step sends it" if call.operation else ""
            self.say(
                f"{call.last_sent:%Y-%m-%d %H:%M:%S}Z  {call.provider}  {call.name}  "
                f"{call.state}{whose}"
            )
        self.say(f"{counted(found.count(), 'call')} due.")

    def report(self) -> None:
        left = self.counted[Resumed.LEFT]
        held = self.counted[Resumed.HELD]
        if not (left or held):
            self.say(self.so_far())
            return
        reasons = "".join(
            f"\n{count:,} x {reason}" for reason, count in self.reasons.most_common(MOST_REASONS)
        )
        person = " Decide about those that are held in the admin." if held else ""
        raise CommandError(f"{self.so_far()}{person}{reasons}")

    def so_far(self) -> str:
        if not self.counted:
            return "Nothing to resume."
        found = [f"{counted(self.counted[Resumed.FINISHED], 'call')} finished"]
        words = {
            Resumed.LEFT: "left",
            Resumed.HELD: "held for a person",
            Resumed.TAKEN: "taken by another process",
        }
        found += [
            f"{self.counted[each]:,} {word}" for each, word in words.items() if self.counted[each]
        ]
        return f"{', '.join(found)}."
