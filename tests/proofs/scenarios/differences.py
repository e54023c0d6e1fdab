"""Where this package differs from a published scenario, and why. docs/explanation/proof.md says how
many.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One scenario whose authors would miss something."""

    suite: str
    scenario: str
    #: What the runner says, sentence by sentence.
    missed: tuple[str, ...]
    #: What happens here instead, and why: a cell of the table in the docs.
    here: str


_CODES = "The codes have other names: a dialect's `error_body()` gives them yours."

DIFFERENCES = (
    Difference(
        suite="anyonce",
        scenario="omitted-body-replay",
        missed=(
            "step 2: status 409, not 200",
            "step 2: the body does not have 0 characters",
            "step 2: Idempotency-Replayed None, not 'true'",
            "step 2: Idempotency-Replay None, not 'omitted'",
        ),
        here="409 `response-not-stored`, with the original status as a member. A client that "
        "reads 200 with an empty body "
        "would take it for the result.",
    ),
    Difference(
        suite="anyonce",
        scenario="problem-code-member",
        missed=(
            "step 1: code 'key-missing', not 'missing-key'",
            "step 3: code 'request-mismatch', not 'fingerprint-mismatch'",
        ),
        here=f"`key-missing`, `request-mismatch`. {_CODES}",
    ),
    Difference(
        suite="anyonce",
        scenario="empty-key-rejected",
        missed=("step 1: code 'key-malformed', not 'invalid-key'",),
        here="`key-malformed`. The same.",
    ),
    Difference(
        suite="anyonce",
        scenario="key-too-long",
        missed=("step 1: code 'key-malformed', not 'invalid-key'",),
        here="`key-malformed`. The same.",
    ),
    Difference(
        suite="idemkit",
        scenario="payload-mismatch",
        missed=("step 2: code 'request-mismatch', not 'payload-mismatch'",),
        here="`request-mismatch`. The same.",
    ),
    Difference(
        suite="idemkit",
        scenario="concurrent-same-key-exactly-once",
        missed=("step 1: also 409",),
        here="One runs. With `wait=5` a quarter of a process's threads may wait, and "
        "always one; the others get 409 "
        "at once, and their retry gets the response. Waiting requests must not occupy all threads.",
    ),
    Difference(
        suite="idemkit",
        scenario="in-flight-wait-timeout",
        missed=("meanwhile: status 409, not 423",),
        here="409, as the IETF draft says. A dialect's `statuses = {InProgress: 423}` gives the other.",
    ),
    Difference(
        suite="idemkit",
        scenario="missing-key-when-required",
        missed=("step 1: code 'key-missing', not 'missing-key'",),
        here="`key-missing`. The same.",
    ),
    Difference(
        suite="idemkit",
        scenario="corrupt-record-treated-as-absent",
        missed=("step 2: status 409, not 201", "step 2: runs 1, not 2"),
        here="409 `record-unreadable`, until a person has looked. The record says that the work "
        "was done: running it again "
        "is a second charge.",
    ),
    Difference(
        suite="idemkit",
        scenario="body-size-exceeded-bypass",
        missed=(
            "step 1: Idempotency-Replay-Unavailable None, not 'size-exceeded'",
            "step 2: runs 1, not 2",
        ),
        here="It does not run again: 409 `response-not-stored`. The first response has no "
        "header for it.",
    ),
    Difference(
        suite="idemkit",
        scenario="queue-lease-shorter-than-visibility",
        missed=("there is no visibility timeout",),
        here="A guarded function does not know its broker. A message that comes while it runs "
        "is refused, and the lease is "
        "renewed until it returns.",
    ),
    Difference(
        suite="idemkit",
        scenario="tool-unserializable-result-fails-closed",
        missed=("step 1: ending 'returned', not 'an error'",),
        here="The first call returns its result, with a warning in the log: the work is done. "
        "The next one raises "
        "`ResponseNotStored`, and does not run.",
    ),
    Difference(
        suite="idemkit",
        scenario="tool-pickle-opt-in-warns",
        missed=("there is no pickle",),
        here="Nothing is stored as a pickle.",
    ),
)
