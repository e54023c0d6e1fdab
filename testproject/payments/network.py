"""A simulated card network.

Its behaviour depends only on the card, so a test or a demo can choose.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass


class Declined(Exception):
    """The card was declined."""

    def __str__(self) -> str:
        return "The card was declined."


class NetworkDown(Exception):
    """The card network did not respond. No view catches it, so it becomes a 500."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    seconds: float = 0
    declined: bool = False
    down: bool = False
    #: Up to this attempt our own process is killed, as in a power cut.
    kill_until: int = -1


#: An amount whose transfer by the bank kills our process once the bank has responded, the first
#: time.
UNLUCKY = 6666

CARDS = {
    "tok_visa": Card(),
    "tok_slow": Card(seconds=2),
    "tok_declined": Card(declined=True),
    "tok_down": Card(down=True),
    "tok_kill_once": Card(kill_until=1),
}


def answer(card: Card, *, attempt: int) -> None:
    """Approve by returning, or raise. Each caller has waited `card.seconds` in its own way."""
    if attempt <= card.kill_until:
        os.kill(os.getpid(), signal.SIGKILL)
    if card.declined:
        raise Declined
    if card.down:
        raise NetworkDown
