"""The errors of guarded functions in words: which function, which argument, and what to type.

Nothing here speaks of HTTP.
"""

from __future__ import annotations

import inspect

from ..errors import (
    CalledItself,
    DeadlinePassed,
    HeldForPerson,
    IdempotencyError,
    InProgress,
    KeyExpired,
    LeaseInTransaction,
    LostRace,
    OperationCancelled,
    OperationUndone,
    OperationUnknown,
    OutcomeUnknown,
    OwnershipLost,
    Problem,
    RecordUnreadable,
    RequestMismatch,
    ResponseNotStored,
    StoreRefused,
    StoreUnavailable,
    TransactionLost,
)
from .terms import FunctionTerms

_AGAIN = "Call it again with the same arguments"
#: Exactly this class → its sentence. What is not here has a sentence of its own.
SENTENCES: dict[type[IdempotencyError], str] = {
    InProgress: "Another call of {name} with the same {key} is still running. "
    + _AGAIN
    + " in {seconds} s.",
    OwnershipLost: "Another call of {name} with the same {key} took over, and the result of this "
    "one is "
    "not stored. " + _AGAIN + " to get that one's.",
    LostRace: "Other transactions were in the way of {name}, and nothing that this call wrote is "
    "kept. " + _AGAIN + " in {seconds} s.",
    RequestMismatch: "{name} was called before with the same {key} and with another {validate}, "
    "and was not "
    "carried out now. "
    "Call it with the {validate} of that call, or look its result up.",
    KeyExpired: "{name} was called before with the same {key}, and the result is no longer "
    "given. It "
    "was not carried out now: "
    "look its result up.",
    RecordUnreadable: "The record of this call of {name} is damaged, or a later version has "
    "written it, so "
    "it was not carried "
    "out again. Look its result up, and the record: manage.py idempotency_record.",
    ResponseNotStored: "{name} was carried out, and its result is not stored, so it is not "
    "carried out again. "
    "Look its result "
    "up. Return what can be stored, or type serializer=….",
    OperationCancelled: "This call of {name} was cancelled, so it was not carried out, and no "
    "later one with "
    "the same {key} "
    "will be. An earlier one may have been: look its result up.",
    OperationUndone: "This call of {name} was carried out in part, and that was undone: nothing "
    "of it "
    "remains. No later call "
    "with the same {key} is carried out.",
    HeldForPerson: "An earlier run of this call of {name} was abandoned, and its effect is "
    "unknown: a "
    "person must decide. Check "
    "with the provider, then release the record (in the admin, or by manage.py "
    "idempotency_record --release), and the next call "
    "runs.",
    StoreUnavailable: "The store of {name} cannot be reached, and nothing that this call wrote "
    "here is kept. " + _AGAIN + ".",
    StoreRefused: "The store of {name} returned an error, and nothing that this call wrote here "
    "is kept. " + _AGAIN + ".",
    TransactionLost: "The transaction of this call of {name} was ended by something else than "
    "its guard, so "
    "its result is not "
    "stored. Let nothing in {name} end it; then call it again with the same arguments.",
    OperationUnknown: "derive() in {name} cannot identify this call because the store is not "
    "responding: "
    "another key could pay "
    "twice. The effect has not been asked for. " + _AGAIN + ".",
    OutcomeUnknown: "It is unknown whether this call of {name} was committed. "
    + _AGAIN
    + " to find out.",
    CalledItself: "{name} was called inside itself with the same {key}, and would wait for "
    "itself to "
    "finish. Give the inner call "
    "another {key}, or call an unguarded function there.",
    LeaseInTransaction: '{name} has guarantee="lease", and was called inside an open '
    "transaction: its record "
    "would stay after that "
    'is rolled back. Call it after COMMIT (`transaction.on_commit`), or type guarantee="atomic".',
    DeadlinePassed: "The deadline of this host passed before {name} began, so nothing ran. Call "
    "it again "
    "elsewhere.",
}


def key_named(terms: FunctionTerms) -> str:
    """Say what is the key of a call."""
    if terms.key is not None:
        return f"key (key={terms.key.expression!r})"
    only = terms.arguments.only
    return "arguments" if only is None else f"argument {only!r}"


def worded(error: IdempotencyError, terms: FunctionTerms) -> IdempotencyError:
    """Let an error that says only what its class says speak of a function's call.

    What a client is told stays in `plainly`.
    """
    kind = type(error)
    if (
        error.plainly is None
        and kind in SENTENCES
        and str(error) == inspect.cleandoc(kind.__doc__ or "")
    ):
        seconds = error.retry_in if isinstance(error, Problem) else None
        validate = "value" if terms.validate is None else f"{terms.validate.expression!r}"
        facts = {
            "name": terms.name,
            "key": key_named(terms),
            "validate": validate,
            "seconds": seconds or 1,
        }
        error.plainly = str(error)
        error.args = (SENTENCES[kind].format(**facts),)
    return error
