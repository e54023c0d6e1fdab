"""Write the tables of docs/reference/profiles.md from the code: `python -m tests.docs.profile_tables`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import fields

from django_idempotency.core.conclusions import DROPPED_STATUSES
from django_idempotency.core.profiles import PROFILES, Profile

from .pages import DOCS

PAGE = DOCS / "reference/profiles.md"
#: What a profile without statuses of its own stores.
BY_TABLE = frozenset(range(200, 500)) - DROPPED_STATUSES
_CLASSES = {first: range(first * 100, first * 100 + 100) for first in (2, 3, 4, 5)}

Row = tuple[str, ...]


def names() -> Iterator[Row]:
    yield "profile", "the key is in", "spelled", "characters", "format"
    for profile in PROFILES.values():
        where = "" if profile.carrier == "header" else f"member `{profile.field}` of the {profile.carrier}"
        spelled = {"either": "bare or quoted", "bare": "bare", "quoted": "a string of RFC 9651"}[profile.spelling]
        yield (
            f"`{profile.name}`",
            where or f"`{profile.field}`",
            "-" if where else spelled,
            f"1 to {profile.max_length}",
            f"`{profile.pattern}`" if profile.pattern else "any",
        )


def statuses() -> Iterator[Row]:
    yield "profile", "missing", "malformed", "another request", "running", "errors", "their headers"
    for profile in PROFILES.values():
        found = (profile.missing_status, profile.invalid_status, profile.mismatch_status, profile.running_status)
        yield (
            f"`{profile.name}`",
            *map(str, found),
            "problem document" if profile.errors == "problem" else f"`{profile.errors}`",
            ", ".join(f"`{name}`" for name in profile.retry_headers),
        )


def memory() -> Iterator[Row]:
    yield "profile", "stored statuses", "a replay of 201 is", "the key comes back on"
    for profile in PROFILES.values():
        yield (
            f"`{profile.name}`",
            "as `default`" if profile.remembers is None and profile.name != "default" else said(stored_by(profile)),
            str(dict(profile.replays_as).get(201, 201)),
            said(profile.echoes) if profile.echoes else "-",
        )


def attributes() -> Iterator[Row]:
    yield "field", "`default` has"
    for field in fields(Profile):
        value = getattr(PROFILES["default"], field.name)
        yield f"`{field.name}`", f"`{value!r}`".replace("'", '"')


def stored_by(profile: Profile) -> Collection[int]:
    return BY_TABLE if profile.remembers is None else profile.remembers


def said(statuses: Collection[int]) -> str:
    """Say a set of statuses: whole classes, without what is missing of each."""
    parts = []
    for first, numbers in _CLASSES.items():
        missing = [str(number) for number in numbers if number not in statuses]
        if len(missing) < len(numbers) / 2:
            parts.append(f"{first}xx" + (f" but {', '.join(missing)}" if missing else ""))
        else:
            parts += [str(number) for number in numbers if number in statuses]
    return "all" if parts == ["2xx", "3xx", "4xx", "5xx"] else "; ".join(parts)


TABLES = {"names": names, "statuses": statuses, "memory": memory, "attributes": attributes}


def written(page: str) -> str:
    """Return a page with its tables as the code has them."""
    for name, rows in TABLES.items():
        head, *body = rows()
        lines = [head, ("---",) * len(head), *body]
        table = "\n".join(
            f"| {' | '.join(line)} |".replace("| --- ", "|---").replace("--- |", "---|") for line in lines
        )
        start = page.index(mark := f"<!-- generated: {name} -->\n\n") + len(mark)
        page = f"{page[:start]}{table}{page[page.index(2 * chr(10), start) :]}"
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
