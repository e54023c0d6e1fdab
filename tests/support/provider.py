"""A provider that deduplicates by key, and whose books outlive every process: files in a folder."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path


class Provider:
    """It has one effect for each key. What it does is done for a card, or for whatever else names
    an operation.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def note(self, what: str, card: str) -> None:
        """Write down that something was begun for a card, whatever becomes of it."""
        with (self.folder / f"{card}.notes").open("a") as notes:
            notes.write(f"{what}\n")

    def notes(self, card: str) -> Counter[str]:
        path = self.folder / f"{card}.notes"
        return Counter(path.read_text().splitlines() if path.exists() else ())

    def call(self, what: str, card: str, key: str) -> list[str]:
        """Return the receipt.

        A file is made whole or not at all, so a process that dies here leaves one effect, or none.
        """
        self.note(what, card)
        (self.folder / f"{card}.{what}.{key}").touch()
        return [card, key]

    def effects(self, card: str) -> Counter[str]:
        return Counter(path.name.split(".")[1] for path in self.folder.glob(f"{card}.*.*"))

    def all_effects(self) -> dict[str, Counter[str]]:
        """Return the effects of each card."""
        found: dict[str, Counter[str]] = defaultdict(Counter)
        for path in self.folder.glob("*.*.*"):
            card, what, _ = path.name.split(".")
            found[card][what] += 1
        return found

    def found(self, what: str, key: str) -> list[str] | None:
        """Return the receipt of an earlier call."""
        return next(
            ([path.name.split(".")[0], key] for path in self.folder.glob(f"*.{what}.{key}")), None
        )
