"""Reports suspects that a search has found, each by a signal and a figure. Nothing is logged: facts may be personal."""

from __future__ import annotations

from typing import Any

from ... import signals
from ...instrumentation.meters import Metric
from .groups import Suspect

FOUND = Metric("duplicates.found", "Suspects that a search found.", ("model",), unit="{suspect}")


def report(model: Any, suspect: Suspect) -> None:
    """Send `duplicate_found`, and count it. What a receiver raises is logged by Django and changes nothing."""
    FOUND.record(model=model._meta.label)
    signals.duplicate_found.send_robust(sender=model, suspect=suspect)
