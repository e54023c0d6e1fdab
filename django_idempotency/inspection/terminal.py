"""A record in a terminal: the admin's page as lines.

Nothing stored may move the cursor or colour a line.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import starmap

from django.utils import timezone

from ..core import rules
from ..core.failures import failure_of, response_of
from ..core.records import CALL_METHOD, Record, Repeats, Status
from ..core.states import RecordState, state_of
from . import redaction
from .failures import described
from .responses import ShownResponse, shown
from .status import display_status, next_answer

#: The width of the labels, and of a point in time.
WIDTH = 14
INSTANT = 26
#: Between two groups of facts.
BLANK = ("", "")

_BODIES = {
    "absent": "not stored: too large, a stream, or not to be stored",
    "sealed": "sealed, and no key of ENCRYPTION_KEYS opens it",
    "empty": "empty",
    "hidden": "{size}, left out",
    "binary": "{size}, not text",
    "image": "{size}, an image",
}


def lines(
    record: Record,
    *,
    store: str,
    reference: str,
    purged: bool,
    body_allowed: bool,
    repeats: Repeats | None = None,
) -> Iterator[str]:
    """Yield the facts of a record, each on its line, and its response.

    `store` is its location, `reference` its `operation_ref`, and `repeats` what was counted
    (COUNT_REPLAYS).
    """
    status = display_status(record)
    now = record.read_at
    is_running = record.status is Status.RUNNING
    facts: list[tuple[str, object]] = [
        ("status", f"{status.label}. {status.meaning}"),
        ("a request now", next_answer(record, purged=purged)),
        BLANK,
        ("scope", record.scope),
        ("key", record.key),
        ("request", f"{record.method} {redaction.text(record.path)}"),
        ("guarantee", record.guarantee),
        ("digest", record.digest.hex() or "none: the next body may differ"),
        BLANK,
        ("attempt", record.attempt),
        ("owner", record.owner),
    ]
    if record.method != CALL_METHOD:
        facts.append(("request id", rules.original_request(record)))
    facts += [
        ("operation", record.operation),
        ("created", _instant(record.created_at, now)),
        ("leased until", _instant(record.lease_until if is_running else None, now)),
        ("completed", _instant(record.completed_at, now)),
    ]
    failure = failure_of(record)
    if failure is not None:
        facts.append(("failed", f"{_instant(failure.at, now)}, {described(failure)}"))
    if repeats is not None:
        counted = (
            f"{repeats.replays:,} replays, {repeats.mismatches:,} refused as another request, "
            f"or more; last {_instant(repeats.last_seen, now)}"
        )
        facts.append(("came again", counted))
    facts += [
        ("expires", _instant(record.expires_at, now)),
        ("kept until", _instant(record.purge_at, now)),
        ("secret id", record.secret_id or "-"),
        ("id", record.id),
        ("operation ref", reference),
        ("store", store),
        BLANK,
    ]
    yield from starmap(_fact, facts)
    response = shown(response_of(record), body_allowed=body_allowed)
    if response is None:
        yield _fact("response", "cannot be read" if record.status is Status.COMPLETED else "none")
    elif state_of(record) is RecordState.EXPIRED:
        yield from _response(response, "no longer sent")
    else:
        yield from _response(response)


def _response(response: ShownResponse, remark: str = "") -> Iterator[str]:
    yield _fact("response", f"{response.status}{remark and f', {remark}'}")
    for number, (name, value) in enumerate(response.headers):
        yield _fact("" if number else "headers", f"{name}: {value}")
    size = f"{response.size:,} byte{'' if response.size == 1 else 's'}"
    yield _fact("body", _BODIES.get(response.kind, "{size}").format(size=size))
    if response.text:
        yield ""
        yield from map(plain, response.text.splitlines())
    if response.cut:
        yield "… cut here."


def _fact(name: str, value: object) -> str:
    return f"{name:<{WIDTH}}{plain(str(value))}".rstrip()


def _instant(value: datetime | None, now: datetime) -> str:
    """Show a point in time in the current time zone, and its distance by the store's clock."""
    if value is None:
        return "-"
    local = timezone.localtime(value)
    distance = f"{span(now - value)} ago" if value <= now else f"in {span(value - now)}"
    return f"{local:%Y-%m-%d %H:%M:%S %Z}".ljust(INSTANT) + distance


def span(length: timedelta) -> str:
    """Return a duration as text, in its two largest units."""
    seconds = length.total_seconds()
    if seconds < 10:
        return f"{seconds:.1f} s"
    left = round(seconds)
    counts: list[tuple[int, str]] = []
    for name, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or counts:
            counts.append((count, name))
    return " ".join(f"{count} {name}" for count, name in counts[:2] if count)


def plain(value: str) -> str:
    r"""Return text on one line, with unprintable characters escaped, such as `\x1b`."""
    return "".join(
        char if char.isprintable() or char == "\t" else char.encode("unicode_escape").decode()
        for char in value
    )
