"""What became of a request or a call, as metrics count it: one word, counted once. A problem says its own."""

from __future__ import annotations

from typing import Final

EXECUTED: Final = "executed"  # the work runs, for the first time or after a failure that left the key free
RESUMED: Final = "resumed"  # the work runs on: a durable execution resumes it
TAKEN_OVER: Final = "taken_over"  # the work runs again: an earlier owner did not finish
REPLAYED: Final = "replayed"  # the stored response was returned
WAITED: Final = "waited"  # the same, after waiting for the first request to finish
RUNNING: Final = "running"  # another request with this key is running
MISMATCH: Final = "mismatch"  # the key was used for a different request
MISSING: Final = "missing"  # no key where one is required
INVALID: Final = "invalid"  # a key that cannot be one: malformed, dated ahead, on a method without support
LATE: Final = "late"  # the key is older than its record would be
HELD: Final = "held"  # a person decides what happens to this key
NOT_STORED: Final = "not_stored"  # it ran before, and its response was not stored
FLOODED: Final = "flooded"  # its client makes too many new keys
SUSPECTED: Final = "suspected"  # refused, since the same was sent with another key
REFUSED: Final = "refused"  # refused for any other reason, before anything ran
UNREADABLE: Final = "unreadable"  # the record is damaged
STORE_ERROR: Final = "store_error"  # the store did not respond, so the request was refused
DEGRADED: Final = "degraded"  # the store did not respond, so the work runs without a guard
UNGUARDED: Final = "unguarded"  # it asked to be guarded, and runs without a guard
OBSERVED: Final = "observed"  # it runs without a guard, whose mode is "observe"
UNKEYED: Final = "unkeyed"  # it has no key, needs none, and runs

OUTCOMES: Final = (
    *(EXECUTED, RESUMED, TAKEN_OVER, REPLAYED, WAITED, RUNNING, MISMATCH, MISSING, INVALID, LATE, HELD, NOT_STORED),
    *(FLOODED, SUSPECTED, REFUSED, UNREADABLE, STORE_ERROR, DEGRADED, UNGUARDED, OBSERVED, UNKEYED),
)
