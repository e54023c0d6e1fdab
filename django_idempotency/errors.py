"""Every exception, split by blame: the caller's, the operator's, or a lost race.

An error's docstring is its message. Those that a client can meet carry the `status` and the stable `code` of their
problem document (RFC 9457); no message ever holds a key, a stored body or a secret.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any, ClassVar
from uuid import UUID


class IdempotencyError(Exception):
    """Something about idempotency went wrong."""

    #: Of a store's renew() that some had no answer to: the owner tokens whose leases were renewed all the same.
    renewed: AbstractSet[UUID] = frozenset()
    #: Of a guarded function's call that met a record: whose, for `lookup()` and `manage.py idempotency_record`.
    scope: str | None = None
    key: str | None = None

    def __init__(self, message: str = "") -> None:
        super().__init__(message or inspect.cleandoc(type(self).__doc__ or ""))


def is_answer(error: BaseException | None, answers: tuple[type[Exception], ...]) -> bool:
    """Is an exception one of those that are as good as a result?

    One of ours only where such a class is named: under `Exception` alone, "it still runs" would be an answer for good.
    """
    ours = isinstance(error, IdempotencyError)
    return isinstance(error, tuple(cls for cls in answers if not ours or issubclass(cls, IdempotencyError)))


class Problem(IdempotencyError):
    """An error with an answer of its own over HTTP."""

    status: ClassVar[int]
    code: ClassVar[str]
    title: ClassVar[str]
    #: Sent with the answer where nothing more precise is known.
    retry_after: ClassVar[str | None] = None

    def __init__(
        self,
        message: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        extensions: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(message)
        #: Sent with the answer, such as Retry-After.
        self.headers = {**({"Retry-After": self.retry_after} if self.retry_after else {}), **(headers or {})}
        #: Further members of the problem document (RFC 9457 section 3.2).
        self.extensions = dict(extensions or {})

    @property
    def retry_in(self) -> int | None:
        """The seconds after which asking again makes sense; `None`: as it is, never."""
        return int(self.headers["Retry-After"]) if "Retry-After" in self.headers else None


# --------------------------------------------------------------------------------------------------- the caller's


class KeyMissing(Problem):
    """This request needs an idempotency key. Send one, made anew for each operation and kept for its retries."""

    status, code, title = 400, "key-missing", "Idempotency key is missing"


class KeyMalformed(Problem):
    """The idempotency key is malformed. Send one header of 1 to 255 printable ASCII characters, such as a UUID."""

    status, code, title = 400, "key-malformed", "Idempotency key is malformed"


class KeyTooShort(KeyMalformed):
    """Without authentication a key is shared by everybody, so it must be hard to guess: send 20 characters or more."""

    code, title = "key-too-short", "Idempotency key is too short"


class ScopeRequired(Problem):
    """An idempotency key belongs to somebody. Authenticate, or send the request without a key."""

    status, code, title = 400, "scope-required", "Idempotency key without a principal"


class RequestTooLarge(Problem):
    """This request is too large to be compared with its retries. Send less at once; nothing was carried out."""

    status, code, title = 413, "request-too-large", "The request is too large"


class RequestMismatch(Problem):
    """This idempotency key was used for another request. Send that request again, or use a new key."""

    status, code, title = 422, "request-mismatch", "Idempotency key is used for another request"


class InProgress(Problem):
    """The first request with this idempotency key is still running. Ask again after the time in Retry-After."""

    status, code, title = 409, "in-progress", "A request with this idempotency key is running"
    retry_after = "1"


class ResponseNotStored(Problem):
    """The request was carried out, but its answer was not stored. It is not carried out again: look up its result."""

    status, code, title = 409, "response-not-stored", "The answer was not stored"
    #: Did a guarded function meet it in a call of its own? Then that call is done, and the function is not.
    inside: bool = False


class ReplayRefused(Problem):
    """You may not see the answer to this request any more."""

    status, code, title = 403, "replay-refused", "Replay is refused"


class ReplayUnchecked(ReplayRefused):
    """The request was carried out, and whether you may still see its response cannot be checked. Look up its result."""

    code, title = "replay-unchecked", "Replay cannot be checked"


class NotDigestible(IdempotencyError, TypeError):
    """What should identify this call has no meaning that could be hashed. Select what does with key=…"""


class NotSelectable(IdempotencyError, ValueError):
    """The expression that selects a part of this payload cannot be applied to it."""


class DeadlinePassed(IdempotencyError):
    """This host's deadline has passed before the call began: nothing has run. Call it again elsewhere."""


class BatchFailed(IdempotencyError):
    """Some records of this batch are not done: `report` says which. Run the batch again: what is done is replayed."""

    def __init__(self, message: str = "", *, report: Any = None) -> None:
        super().__init__(message)
        #: The `BatchReport`.
        self.report = report


# ------------------------------------------------------------------------------------------------- the operator's


class HeldForPerson(IdempotencyError):
    """An earlier run of this call crashed, and nobody could tell what it did: it waits for a person.

    Look at the provider and release the record (in the admin, or by `manage.py idempotency_record --release`): then the
    next call runs.
    """


class RecordUnreadable(Problem):
    """The record of this idempotency key cannot be read, so the request was not carried out again. Look up its result.

    It is damaged, or a later version has written it.
    """

    status, code, title = 500, "record-unreadable", "The record cannot be read"


class StoreUnavailable(Problem):
    """The idempotency store cannot be reached. The request was not carried out; send it again."""

    status, code, title = 503, "store-unavailable", "Idempotency store is unavailable"
    retry_after = "1"


class StoreRefused(StoreUnavailable):
    """The idempotency store answers with an error. The request was not carried out; send it again."""


class TransactionLost(StoreUnavailable):
    """The transaction of this request was ended before its result could be remembered. Send it again with the same key."""

    code, title = "transaction-lost", "The transaction was lost"


class OperationUnknown(StoreUnavailable):
    """derive() cannot tell which operation this is, since the store does not answer: another key could pay twice.

    The effect has not been asked for. Send the request again.
    """


class OutcomeUnknown(Problem):
    """The connection broke while the result was committed. Send the request again with the same key to find out."""

    status, code, title = 503, "outcome-unknown", "The outcome is unknown"
    retry_after = "1"


class ConfigurationError(IdempotencyError):
    """The project asks django-idempotency for something that it cannot have."""


class DurableInsideGuard(ConfigurationError):
    """atomic(durable=True) cannot work inside an atomic guard: its COMMIT is the guard's. Use guarantee="lease"."""


class CalledItself(ConfigurationError):
    """A guarded call met its own key inside itself: it would wait for its own end.

    Give the inner call another key, or call a function there that is not guarded.
    """


class LeaseInTransaction(ConfigurationError):
    """A call with guarantee="lease" inside an open transaction would be remembered although that may be rolled back.

    Call it after COMMIT (`transaction.on_commit`), or use guarantee="atomic".
    """


class ImplicitCommit(ConfigurationError):
    """This statement ends the transaction (on MySQL and MariaDB any DDL does), which an atomic guard cannot survive.

    Run it outside the guarded call, or use guarantee="lease".
    """


class SecretUnknown(ConfigurationError):
    """The secret of this operation's first attempt is gone.

    Put it back among IDEMPOTENCY["DERIVE_SECRET_FALLBACKS"] (or SECRET_KEY_FALLBACKS): another downstream key could
    repeat an effect that has happened.
    """


class OutsideTransaction(ConfigurationError):
    """outbox.send() outside a transaction: the message could leave although the effect fails, or the reverse.

    Call it inside the transaction.atomic() that writes the effect, on the same database, or say which by using=….
    """


class BrokerUnavailable(IdempotencyError):
    """The broker cannot be reached. Its messages stay in the outbox, and the relay connects anew."""


# ---------------------------------------------------------------------------------------------------- a lost race


class LostRace(IdempotencyError):
    """Another transaction was faster; nothing of ours was written."""


class LeaseLost(LostRace):
    """The lease of this operation ended before it did: another may run the work by now. Nothing more is remembered."""


class OwnershipLost(LostRace, InProgress):
    """This request was overtaken by another with the same idempotency key, and changed nothing. Ask again."""


def clarified(error: BaseException) -> BaseException:
    """Return our error for one of Django's that a guard has caused."""
    if isinstance(error, RuntimeError) and "durable atomic block cannot be nested" in str(error):
        clearer = DurableInsideGuard()
        clearer.__cause__ = error
        return clearer
    return error
