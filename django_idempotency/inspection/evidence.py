"""What is noted of a record before an operator changes it: enough to prove later what was there, and no body."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

from ..core.failures import failure_of, response_of
from ..core.records import MISSING, Record
from . import redaction
from .failures import described


def evidence(record: Record, *, erased: bool = False) -> str:
    """Describe a record and its response on one line: status, size, SHA-256 and the address of what it made.

    Of a record that is `erased` no trace of the response's content is noted: its hash could be compared with a guess.
    """
    return ", ".join(_facts(record, erased=erased))


def _facts(record: Record, *, erased: bool) -> Iterator[str]:
    yield f"{record.status.name.lower()}, attempt {record.attempt}"
    if record.completed_at is not None:
        yield f"completed {record.completed_at.isoformat(timespec='seconds')}"
    if (failure := failure_of(record)) is not None:
        yield described(failure)
    if (outcome := response_of(record)) is None:
        return
    named = {name.lower(): value for name, value in outcome.headers}
    yield f"response {outcome.status}"
    if content_type := named.get("content-type"):
        yield redaction.text(content_type)
    if (location := named.get("location")) and not erased:
        yield f"Location {redaction.text(location)}"
    if outcome.body is MISSING:
        yield "body not stored"
    else:
        yield f"{len(outcome.body):,} bytes"
        if not erased:
            yield f"SHA-256 {sha256(outcome.body).hexdigest()}"
