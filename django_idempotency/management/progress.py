"""How long commands show their progress."""

from __future__ import annotations

import time

from django.core.management.base import BaseCommand

#: Seconds between two lines of progress without a terminal.
PACE = 5.0


class ProgressCommand(BaseCommand):
    """A command that says how far it is. Set `verbosity` and `reported` when the work begins."""

    verbosity: int
    #: When the last line of progress was written, by the monotonic clock.
    reported: float
    #: Is a line on the terminal that must be cleared?
    _shown = False

    def so_far(self) -> str:
        """Say how far it is, in a sentence."""
        raise NotImplementedError

    def on_terminal(self) -> str:
        """Say it on a terminal, over what was said before. Clear that first if this may be shorter."""
        return f"\033[K{self.so_far()}"

    @property
    def writes_lines(self) -> bool:
        """Is progress written without a terminal?"""
        return self.verbosity > 1

    def progress(self) -> None:
        """Show progress: on a terminal one line, overwritten; elsewhere one every few seconds, at --verbosity 2."""
        now = time.monotonic()
        if self.verbosity > 0 and self.stderr.isatty():
            self._shown = True
            self.stderr.write(f"\r{self.on_terminal()}", ending="")
            self.stderr.flush()
        elif self.writes_lines and now - self.reported >= PACE:
            self.reported = now
            self.stderr.write(self.so_far())

    def end_progress(self) -> None:
        """Clear the line on the terminal."""
        if self._shown:
            self._shown = False
            self.stderr.write("\r\033[K", ending="")

    def say(self, sentence: str) -> None:
        """Print a sentence, unless nothing is to be printed."""
        if self.verbosity > 0:
            self.stdout.write(sentence)
