"""Publish the outbox. Several relays may run."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError, CommandParser
from django.db import Error, InterfaceError, OperationalError, connections, router
from django.utils.connection import ConnectionDoesNotExist

from .....api import setting
from .....errors import BrokerUnavailable, ConfigurationError
from .....management.arguments import not_negative, positive
from .....management.base import ProgressCommand
from .....stores.orm import database_errors
from ...models import Message
from ...publishing import Publish, open_publisher, publisher_at
from ...relaying import MAX_ATTEMPTS, Relay, RelayedBatch, describe_error
from ...waking import NAP, Listener

logger = logging.getLogger("django_idempotency")

#: Seconds before a lost database or broker is retried: the first pause, doubled each time, and the
#: longest.
RECONNECT = 1.0
LONGEST_RECONNECT = 10.0
#: Tries of a batch that loses a race (a deadlock, a lock of SQLite), with --once.
TRIES = 5


class Command(ProgressCommand):
    """Publish the messages of the outbox, each at least once, those with the same key in
    order. It runs until SIGTERM or Ctrl+C, and then finishes the current message.

    when:
      As a service beside the web workers; and with --once by hand when messages wait and
      you want to see why. Several may run at once.

    examples:
      %(prog)s
          Publish until it is stopped, by the publisher of OUTBOX_PUBLISHER.
      %(prog)s --once --verbosity 2
          Publish what is due, say how far it is, and exit.
      %(prog)s --listen
          Be woken by PostgreSQL, in place of asking each second.

    exit status:
      0    All was done.
      1    With --once: a message failed, or the broker or the database was away.
      2    An option is wrong. Nothing was done.
      130  It was interrupted in the middle of a message, which is sent again.
    """

    requires_system_checks = "__all__"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--publisher",
            metavar="PATH",
            help="Dotted path of a function publish(message), or of a class with it; "
            'IDEMPOTENCY["OUTBOX_PUBLISHER"].',
        )
        parser.add_argument(
            "--using", metavar="ALIAS", help="In DATABASES; where messages are written by default."
        )
        parser.add_argument(
            "--batch", type=positive, default=100, metavar="MESSAGES", help="In a transaction; 100."
        )
        parser.add_argument(
            "--max-attempts",
            type=positive,
            default=MAX_ATTEMPTS,
            metavar="TIMES",
            help="Set a message aside in whose attempts relays have died so often; "
            f"{MAX_ATTEMPTS}.",
        )
        mode = parser.add_mutually_exclusive_group()
        mode.add_argument(
            "--once", action="store_true", help="Publish the messages that are due, and exit."
        )
        mode.add_argument(
            "--poll",
            type=not_negative,
            default=1.0,
            metavar="SECONDS",
            help="Between polls, idle; 1.",
        )
        parser.add_argument(
            "--listen", action="store_true", help="Also when PostgreSQL notifies: see NotifyRelay."
        )
        parser.add_argument(
            "--progress",
            action="store_true",
            help="Also without a terminal: a line every 5 seconds.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        self.begin(options)
        self.once: bool = options["once"]
        self.poll: float = options["poll"]
        self.size: int = options["batch"]
        self.max_attempts: int = options["max_attempts"]
        self.lines: bool = options["progress"] or self.verbosity > 1
        self.using: str = options["using"] or router.db_for_write(Message)
        self.stopping = False
        self.published = self.failed = self.troubles = 0
        try:
            self.publisher = publisher_at(path(options["publisher"]))
            self.vendor = connections[self.using].vendor
            self.idle = (
                Listener(self.using, lambda: self.stopping).wait if options["listen"] else self.nap
            )
        except (ConfigurationError, ImproperlyConfigured, ConnectionDoesNotExist) as error:
            raise CommandError(str(error)) from error
        with self.signals():
            if not self.once:
                self.say(f"Publishing the outbox of {self.using!r}. Stop with Ctrl+C or SIGTERM.")
                self.stdout.flush()
            try:
                while not self.relayed():
                    pass
            except KeyboardInterrupt:
                self.end_progress()
                raise CommandError(
                    f"Interrupted in the middle of a message. {self.so_far()}", returncode=130
                ) from None
            except ConfigurationError as error:
                raise CommandError(str(error)) from error
        self.end_progress()
        if self.once and self.failed:
            raise CommandError(
                f"{self.so_far()} Failed messages are retried later; their errors are in the admin."
            )
        self.say(self.so_far())

    # ---------------------------------------------------------------------------------------- relay

    def relayed(self) -> bool:
        """Publish until done, or until the database or the broker is lost.

        Return whether it is done.
        """
        try:
            with open_publisher(self.publisher) as publish:
                away = self.publish_on(publish)
        except BrokerUnavailable as error:
            away = error
        except Error as error:
            connections[self.using].close()
            if not self.passing(error):
                self.end_progress()
                raise CommandError(
                    f"The outbox in {self.using!r} cannot be read. Is it migrated? "
                    f"{describe_error(error)}\n{self.so_far()}"
                ) from error
            return self.give_way(error, what=f"The database {self.using!r}")
        return away is None or self.give_way(away, what="The broker")

    def publish_on(self, publish: Publish) -> Exception | None:
        """Publish batch after batch.

        Return why the broker is unavailable, or `None` when nothing is left to do.
        """
        relay = Relay(
            publish,
            using=self.using,
            size=self.size,
            once=self.once,
            max_attempts=self.max_attempts,
            stopping=lambda: self.stopping,
        )
        last = self.last() if self.once else 0
        while not self.stopping:
            batch = relay.batch()
            self.note(batch)
            if batch.away is not None:
                return batch.away
            self.troubles = 0
            if self.once and not any(position <= last for position in batch.positions):
                break  # under traffic there is always another: stop at those from before we began
            if not batch:
                self.idle(self.poll)
        return None

    def last(self) -> int:
        return (
            Message.objects.using(self.using).order_by("-pk").values_list("pk", flat=True).first()
            or 0
        )

    def give_way(self, error: Exception, *, what: str) -> bool:
        """Wait before the next try, longer each time. Return whether to stop instead.

        Raises `CommandError` with --once, unless it was a lost race.
        """
        self.troubles += 1
        race = isinstance(error, Error) and database_errors.lost_race(error)
        if self.once and not (race and self.troubles < TRIES):
            self.end_progress()
            raise CommandError(
                f"{what} did not respond. {describe_error(error)}\n{self.so_far()}"
            ) from error
        pause = min(RECONNECT * 2 ** min(self.troubles - 1, 10), LONGEST_RECONNECT)
        logger.warning(
            "%s did not respond to the relay. Next try in %.0f s. %s",
            what,
            pause,
            describe_error(error),
        )
        self.nap(pause)
        return self.stopping

    def passing(self, error: Error) -> bool:
        """Is the error temporary?

        SQLite has no connection to lose, but calls every error operational.
        """
        operational = (
            isinstance(error, (OperationalError, InterfaceError)) and self.vendor != "sqlite"
        )
        return operational or database_errors.lost_race(error)

    # ------------------------------------------------------------------------------------- stopping

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Stop after the first SIGTERM or SIGINT. A second one has its usual effect."""
        if threading.current_thread() is not threading.main_thread():
            yield  # call_command() in a thread, where no signal handler can be set
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

        def stop(*_: Any) -> None:
            self.stopping = True
            restore()

        def restore() -> None:
            for number, handler in before.items():
                signal.signal(number, handler)

        for number in before:
            signal.signal(number, stop)
        try:
            yield
        finally:
            restore()

    def nap(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self.stopping and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, NAP))
        self.progress()

    # --------------------------------------------------------------------------------------- output

    def note(self, batch: RelayedBatch) -> None:
        self.published += len(batch.published)
        self.failed += len(batch.failed) + len(batch.set_aside)
        self.progress()

    def so_far(self) -> str:
        if not self.published and not self.failed:
            return "Nothing was published."
        failed = f", {self.failed:,} failed" if self.failed else ""
        return f"{self.published:,} message{'' if self.published == 1 else 's'} published{failed}."

    @property
    def writes_lines(self) -> bool:
        return self.lines


def path(given: str | None) -> str:
    """Return the dotted path of the publisher. Raises `ImproperlyConfigured` if none is set."""
    found = given or setting("OUTBOX_PUBLISHER")
    if isinstance(found, str) and found:
        return found
    raise ImproperlyConfigured(
        "Which publisher? Type --publisher shop.broker.Publisher, or set "
        'IDEMPOTENCY["OUTBOX_PUBLISHER"] to that path.'
    )
