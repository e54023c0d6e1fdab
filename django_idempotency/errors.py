"""Every exception, split by blame: the caller's, the operator's, or a lost race.

An error's docstring is its message. Those that a client can meet say all about themselves, such as
the `status` and the stable `code` of their problem document (RFC 9457); no message ever holds a
key, a stored body or a secret.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any, ClassVar
from uuid import UUID

#: How an extra is installed from a clone: no index has the package yet.
INSTALL = 'pip install "./django-idempotency[{}]"'


class IdempotencyError(Exception):
    """Something about idempotency went wrong."""

    #: From a store's renew() that failed in part: the owner tokens whose leases were renewed.
    renewed: AbstractSet[UUID] = frozenset()
    #: The record that a guarded function's call met, for `lookup()` and `manage.py
    #: idempotency_record`.
    scope: str | None = None
    key: str | None = None
    #: What a client is told, where the error itself speaks of a function and its arguments
    #: (`functions.wording`).
    plainly: str | None = None
    #: What becomes of a message whose handler raised it, see `messages`: it is "done", comes again
    #: "later", or "never"; or its handler has "failed", which is counted. Each class says it
    #: itself: a subclass that does not has "failed", see `delivery_of()`.
    delivery: ClassVar[str] = "failed"

    def __init__(self, message: str = "") -> None:
        super().__init__(message or inspect.cleandoc(type(self).__doc__ or ""))


def delivery_of(error: BaseException) -> str:
    """Return what becomes of a message whose handler raised an error.

    What its class does not say itself, it has not inherited.

    Otherwise an error that a message meets each time would be delivered again without end, as if
    the store were away.
    """
    found: str = (
        vars(type(error)).get("delivery", "failed")
        if isinstance(error, IdempotencyError)
        else "failed"
    )
    return found


def is_answer(error: BaseException | None, answers: tuple[type[Exception], ...]) -> bool:
    """Does an exception count as a result?

    Ours only if their class is named: under `Exception` alone, "it is still running" would become
    the final result.
    """
    ours = isinstance(error, IdempotencyError)
    return isinstance(
        error, tuple(cls for cls in answers if not ours or issubclass(cls, IdempotencyError))
    )


def _always(terms: Any) -> bool:  # noqa: ARG001 - no field of the policy decides it
    return True


def _dated(terms: Any) -> bool:
    return terms.key_format in ("uuid7", "issued") or bool(terms.profile.window > 0)


def _expires(terms: Any) -> bool:
    return _dated(terms) or terms.seen_for > 0


def _raised_by_extension(problem: type[Problem], terms: Any) -> bool:
    return any(problem in each.raises for each in terms.extensions)


#: The same request with the same key; with a new key, if it is still wanted; look for its effect
#: before any other request; or nothing until somebody has acted.
RETRIES = ("same-key", "new-key", "look-first", "never")


class Problem(IdempotencyError):
    """An error with an HTTP response of its own. Its class says all that is known of it, and a
    subclass what differs.
    """

    status: ClassVar[int]
    code: ClassVar[str]
    title: ClassVar[str]
    #: Sent with the response where nothing more precise is known.
    retry_after: ClassVar[str | None] = None
    #: What the client does next, for a program: one of `RETRIES`. `safe_new_key` says what is known
    #: of another key.
    retry: ClassVar[str] = "look-first"
    #: Has its response the header `Idempotency-Status` (`core.statuses`)? Not where it is about no
    #: request with a key.
    has_status: ClassVar[bool] = True
    #: What it says about the operation, see `core.standings`; `None`: it is about no record.
    operation_state: ClassVar[str | None] = None
    #: How metrics count it, see `instrumentation.outcomes`.
    outcome: ClassVar[str] = "refused"
    #: Was it refused before any record was looked up, for what is wrong with the key? Then a page
    #: may offer a new one.
    nothing_done: ClassVar[bool] = False
    #: May the work itself raise it, and is it then the response? What the work wrote is rolled
    #: back, and its key stays bound.
    ends_work: ClassVar[bool] = False
    #: May a request under a policy (with all its fields) meet it, and is it published? A subclass
    #: does not inherit it.
    arises: ClassVar[staticmethod[[Any], bool]]
    delivery = "failed"
    #: The address of the section about it, by PROBLEM_DOCS; `None`: the project has set none.
    docs: str | None = None

    def __init__(
        self,
        message: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        extensions: Mapping[str, str | int] | None = None,
    ) -> None:
        super().__init__(message)
        #: Sent with the response, such as Retry-After.
        self.headers = {
            **({"Retry-After": self.retry_after} if self.retry_after else {}),
            **(headers or {}),
        }
        #: Further members of the problem document (RFC 9457 section 3.2).
        self.extensions: dict[str, str | int] = dict(extensions or {})

    @property
    def detail(self) -> str:
        """Its message on one line, as a client is told."""
        return " ".join((self.plainly or str(self)).split())

    @property
    def retry_in(self) -> int | None:
        """Seconds after which a retry makes sense; `None` if the same request never will
        succeed.
        """
        return int(self.headers["Retry-After"]) if "Retry-After" in self.headers else None


# ------------------------------------------------------------------------------------- the caller's


class KeyMissing(Problem):
    """This request needs an idempotency key. Generate a new key for each operation, and reuse it
    for retries.
    """

    status = 400
    code = "key-missing"
    title = "Idempotency key is missing"
    retry = "new-key"
    has_status = False
    outcome = "missing"
    nothing_done = True
    arises = staticmethod(lambda terms: terms.required is True)
    delivery = "never"


class KeyMalformed(Problem):
    """The idempotency key is malformed. Send one header of 1 to 255 printable ASCII characters,
    such as a UUID.
    """

    status = 400
    code = "key-malformed"
    title = "Idempotency key is malformed"
    retry = "new-key"
    outcome = "invalid"
    nothing_done = True
    arises = staticmethod(_always)
    delivery = "never"


class KeyTooShort(KeyMalformed):
    """Without authentication all clients share their keys, so make yours hard to guess: 20
    characters or more.
    """

    code = "key-too-short"
    title = "Idempotency key is too short"
    arises = staticmethod(lambda terms: terms.anonymous == "shared")
    delivery = "never"


class KeyForeign(KeyMalformed):
    """This idempotency key was issued to another client, or for another address. Send it as that
    client, and to that address.
    """

    code = "key-foreign"
    title = "Idempotency key was issued for something else"
    outcome = "refused"
    retry = "look-first"
    arises = staticmethod(lambda terms: terms.key_format == "issued")
    delivery = "never"


class KeyNotIssued(Problem):
    """No idempotency key was issued: send nothing, or name the method and the path of the request
    that it is for.
    """

    status = 400
    code = "key-not-issued"
    title = "No idempotency key was issued"
    retry = "never"
    has_status = False
    nothing_done = True
    delivery = "never"


class KeyExpired(Problem):
    """This idempotency key is older than this API remembers: it cannot tell whether the request was
    carried out.

    It was not carried out now. Look up its result: under a new key it could be carried out twice.
    """

    status = 412
    code = "key-expired"
    title = "Idempotency key has expired"
    outcome = "late"
    nothing_done = True
    arises = staticmethod(_expires)
    delivery = "never"


class KeyAhead(Problem):
    """This idempotency key is dated ahead, so its age cannot be known. Set your clock, and make a
    new key.
    """

    status = 412
    code = "key-ahead"
    title = "Idempotency key is dated ahead"
    retry = "new-key"
    outcome = "invalid"
    nothing_done = True
    arises = staticmethod(_dated)
    delivery = "never"


class KeyUnsupported(Problem):
    """This method takes no idempotency key, so the request was not carried out. Ask for the methods
    that do.
    """

    status = 501
    code = "key-unsupported"
    title = "Idempotency key is not supported"
    retry = "never"
    outcome = "invalid"
    nothing_done = True
    arises = staticmethod(lambda terms: terms.profile.refuses_methods)
    delivery = "never"


class ScopeRequired(Problem):
    """It is unknown which client owns this idempotency key. Authenticate, and send the request
    again with the same key.
    """

    status = 400
    code = "scope-required"
    title = "Idempotency key without a principal"
    retry = "never"
    nothing_done = True
    arises = staticmethod(lambda terms: terms.anonymous == "refuse")
    delivery = "never"


class RequestTooLarge(Problem):
    """This request is too large to compare with its retries. It was not carried out; send less at
    once.
    """

    status = 413
    code = "request-too-large"
    title = "The request is too large"
    retry = "never"
    arises = staticmethod(
        lambda terms: terms.max_request_body is not None and terms.fingerprint != "headers"
    )
    delivery = "never"


class BodyIncomplete(Problem):
    """A part of this request's body is missing: it is shorter than its Content-Length. The request
    was not carried out.

    Send all of it again with the same key.
    """

    status = 400
    code = "body-incomplete"
    title = "The body is incomplete"
    retry = "same-key"
    retry_after = "1"
    arises = staticmethod(_always)
    delivery = "later"


class RequestMismatch(Problem):
    """This idempotency key was used for a different request, so this one was not carried out.
    Repeat that request unchanged.

    If this one is meant, look first if it was carried out: under a new key that could happen twice.
    """

    status = 422
    code = "request-mismatch"
    title = "Idempotency key was used for a different request"
    outcome = "mismatch"
    operation_state = "unknown"  # where its record was read, that says it
    arises = staticmethod(_always)
    delivery = "never"


class InProgress(Problem):
    """The first request with this idempotency key is still running. Send it again later, with the
    same key.
    """

    status = 409
    code = "in-progress"
    title = "A request with this idempotency key is running"
    retry = "same-key"
    operation_state = "running"
    outcome = "running"
    retry_after = "1"
    arises = staticmethod(_always)
    delivery = "later"


class TooManyKeys(Problem):
    """This client makes too many new idempotency keys. Repeat a request with its own key; a new one
    must wait.
    """

    status = 429
    code = "too-many-keys"
    title = "Too many new idempotency keys"
    retry = "same-key"
    # This request did nothing, but an earlier one may have.
    operation_state = "unknown"
    outcome = "flooded"
    retry_after = "1"
    arises = classmethod(_raised_by_extension)
    delivery = "later"


class PossibleDuplicate(Problem):
    """A request with another idempotency key asks for the same. This one was not carried out: ask
    for that one's result.

    If both are meant, send this one again later.
    """

    status = 409
    code = "possible-duplicate"
    title = "This may be a duplicate"
    operation_state, outcome = "unknown", "suspected"  # the state of the other key
    arises = classmethod(_raised_by_extension)
    delivery = "never"


class ResponseNotStored(Problem):
    """The request was carried out, but its response was not stored. It is not carried out again:
    look up its result.
    """

    status = 409
    code = "response-not-stored"
    title = "The response was not stored"
    operation_state = "completed"
    outcome = "not_stored"
    arises = staticmethod(_always)
    #: Was it raised by a call inside a guarded function? Then that inner call is done, and the
    #: function is not.
    inside: bool = False
    delivery = "done"


class OperationHeld(Problem):
    """An earlier attempt was abandoned, and a person is finding out how far it came. Do not send it
    again with a new key.
    """

    status = 409
    code = "operation-held"
    title = "The outcome is being looked into"
    retry = "never"
    operation_state = "held"
    outcome = "held"
    arises = staticmethod(
        lambda terms: terms.on_takeover is not None and terms.guarantee == "lease"
    )
    delivery = "never"


class KeyTooOld(OperationHeld):
    """An earlier attempt may have passed a key on, which is too old to be used again: a person
    finds out how far it came.

    Do not send it again with a new key.
    """

    code = "key-too-old"
    title = "A key is too old to be used again"
    arises = staticmethod(_always)
    delivery = "never"


class ReplayRefused(Problem):
    """You are no longer allowed to see the response to this request."""

    status = 403
    code = "replay-refused"
    title = "Replay is refused"
    retry = "never"
    operation_state = "completed"
    arises = staticmethod(_always)
    delivery = "never"


class ReplayUnchecked(ReplayRefused):
    """The request was carried out, but your permission to see its response cannot be checked. Look
    up its result.
    """

    code = "replay-unchecked"
    title = "Replay cannot be checked"
    retry = "look-first"
    delivery = "never"


class OperationCancelled(Problem):
    """This operation was cancelled, so this request was not carried out, and no later one with its
    key will be.

    An earlier one may have been. Look up its result: under a new key it could be carried out twice.
    """

    status = 409
    code = "operation-cancelled"
    title = "The operation was cancelled"
    operation_state = "unknown"  # an earlier request may have done it, or a part of it
    arises = staticmethod(_always)
    delivery = "never"


class OperationUndone(OperationCancelled):
    """This operation was carried out in part, and that was undone: nothing of it remains.

    No later request with its key is carried out.
    """

    code = "operation-undone"
    title = "The operation was undone"
    operation_state = "undone"
    arises = staticmethod(lambda terms: terms.guarantee == "lease")
    delivery = "never"


class KeyUnknown(Problem):
    """No request with this idempotency key is known. Either none has arrived, or its retention has
    ended.
    """

    status = 404
    code = "key-unknown"
    title = "Idempotency key is unknown"
    has_status = False
    delivery = "failed"


class UnhashablePayload(IdempotencyError, TypeError):
    """The values that identify this call cannot be hashed. Select values that can with key=…"""

    delivery = "never"


class NotSelectable(IdempotencyError, ValueError):
    """The selecting expression cannot be applied to this payload."""

    delivery = "never"


class DeadlinePassed(IdempotencyError):
    """This host's deadline passed before the call began, so nothing ran. Call it again
    elsewhere.
    """

    delivery = "later"


class CallChanged(IdempotencyError):
    """Another request was made under the name of this outgoing call, so nothing was sent.

    A name is one call: its method, its URL and its body. Send what was sent before. If this is a
    further call, and that one is not to be repeated, its name says so, such as
    "order-17-second-card".
    """

    delivery = "failed"


class CallResponseNotStored(IdempotencyError):
    """The provider has carried out the outgoing call of this name, but its response is not stored.
    Nothing was sent.

    Look it up there.
    """

    delivery = "failed"


class BatchFailed(IdempotencyError):
    """Some records of this batch did not complete; see `report`. Run the batch again: those that
    did are replayed.
    """

    delivery = "failed"

    def __init__(self, message: str = "", *, report: Any = None) -> None:
        super().__init__(message)
        #: The `BatchReport`.
        self.report = report


# ----------------------------------------------------------------------------------- the operator's


class HeldForPerson(IdempotencyError):
    """An earlier run of this call was abandoned, and its effect is unknown: a person must decide.

    Check with the provider, then release the record (in the admin, or by `manage.py
    idempotency_record --release`), and the next call runs.
    """

    delivery = "never"


class CallHeld(HeldForPerson):
    """An outgoing call of this name was sent, its outcome is unknown, and the provider may have
    forgotten its key.

    Nothing was sent. Look it up there, and say in the admin whether it was carried out.
    """

    delivery = "never"


class RecordUnreadable(Problem):
    """The record of this idempotency key cannot be read, so the request was not carried out again.
    Look up its result.

    It is damaged, or was written by a later version.
    """

    status = 500
    code = "record-unreadable"
    title = "The record cannot be read"
    operation_state = "unknown"
    outcome = "unreadable"
    arises = staticmethod(_always)
    delivery = "failed"


class StoreUnavailable(Problem):
    """The idempotency store cannot be reached, and nothing that this request wrote here is kept.
    Send it again with the same key.
    """

    status = 503
    code = "store-unavailable"
    title = "Idempotency store is unavailable"
    retry = "same-key"
    # This request did nothing, but an earlier one may have.
    operation_state = "unknown"
    outcome = "store_error"
    retry_after = "1"
    arises = staticmethod(lambda terms: terms.on_store_failure == "closed")
    #: What the operator types, for the log. No client sees it.
    advice: str = ""
    delivery = "later"


class StoreRefused(StoreUnavailable):
    """The idempotency store returned an error, and nothing that this request wrote here is kept.
    Send it again with the same key.
    """

    delivery = "later"


class TransactionLost(StoreUnavailable):
    """The transaction of this request ended before its result could be stored. Send it again with
    the same key.
    """

    code = "transaction-lost"
    title = "The transaction was lost"
    outcome = "refused"
    arises = staticmethod(lambda terms: terms.guarantee == "atomic")
    delivery = "failed"


class WritesRolledBack(Problem):
    """What this wrote was rolled back: an error was caught while it ran, and then it reported a
    success.

    Where it was caught: give what may fail its own atomic(). The same request with the same key
    runs again.
    """

    status = 500
    code = "writes-rolled-back"
    title = "The writes were rolled back"
    retry = "same-key"
    operation_state = "unknown"
    arises = staticmethod(lambda terms: terms.guarantee == "atomic")
    delivery = "failed"

    @classmethod
    def by(cls, error: BaseException | None) -> WritesRolledBack:
        """Return the problem with the class of the caught error in its sentence.

        `None`: it is not known.
        """
        problem = cls()
        if error is not None:
            text = str(problem).replace("an error was caught", f"{_article(error)} was caught", 1)
            problem = cls(text)
        return problem


class TransactionLeftOpen(WritesRolledBack):
    """What this wrote in this database was rolled back: it left a transaction open, which nobody
    commits.

    Where it began: use atomic() in place of BEGIN and set_autocommit(False), or commit. The same
    request with the same key runs again.
    """

    arises = staticmethod(lambda terms: terms.guarantee == "lease")
    delivery = "failed"
    #: The alias of the connection.
    using = ""


def _article(error: BaseException) -> str:
    name = type(error).__name__
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


class OperationUnknown(StoreUnavailable):
    """derive() cannot identify this operation because the store is not responding: another key
    could pay twice.

    The effect has not been requested. Send the request again with the same key.
    """

    delivery = "later"


class OutcomeUnknown(Problem):
    """The result could not be written down, or the connection broke meanwhile. Send the request
    again with the same key to find out.
    """

    status = 503
    code = "outcome-unknown"
    title = "The outcome is unknown"
    retry = "same-key"
    operation_state = "unknown"
    retry_after = "1"
    arises = staticmethod(_always)
    delivery = "later"


class ConfigurationError(IdempotencyError):
    """The project asks django-idempotency for something it cannot do."""

    delivery = "failed"


class DurableInsideGuard(ConfigurationError):
    """atomic(durable=True) cannot work inside an atomic guard: its COMMIT is the guard's. Use
    guarantee="lease".
    """

    delivery = "failed"


class CalledItself(ConfigurationError):
    """A guarded call ran into its own key, and would wait for itself to finish.

    Give the inner call another key, or call an unguarded function there.
    """

    delivery = "never"


class LeaseInTransaction(ConfigurationError):
    """A call with guarantee="lease" is refused inside an open transaction: its record could stay
    after a rollback of the work, or be rolled back after the work has acted elsewhere.

    Call it after COMMIT (`transaction.on_commit`), or use guarantee="atomic". If ATOMIC_REQUESTS
    began the transaction, exclude the view: `@transaction.non_atomic_requests`, on a class
    `@method_decorator(transaction.non_atomic_requests, name="dispatch")`.
    """

    delivery = "failed"


class ImplicitCommit(ConfigurationError):
    """This statement ends the transaction (on MySQL and MariaDB any DDL does), which an atomic
    guard cannot survive.

    Run it outside the guarded call, or use guarantee="lease".
    """

    delivery = "failed"


class StepsChanged(ConfigurationError):
    """The steps of an operation that broke off are not those of the code that resumes it.

    Run the code that began it until such operations have ended, or undo them: `manage.py
    idempotency_resume operations --undo REF`.
    """

    delivery = "failed"


class StepResultNotStored(ConfigurationError):
    """A step was carried out, but its result could not be stored, so nothing that needs it can
    follow. Return less.
    """

    delivery = "failed"


class StepsNotUndone(IdempotencyError):
    """An operation that a person undoes has given up, and something is left. The message is for
    that person, in their language.
    """

    delivery = "failed"


class SecretUnknown(ConfigurationError):
    """The secret that this operation's first attempt used is no longer configured.

    Add it back to IDEMPOTENCY["DERIVE_SECRET_FALLBACKS"] (or SECRET_KEY_FALLBACKS): another
    downstream key could repeat an effect that has already happened.
    """

    delivery = "failed"


class CallInTransaction(ConfigurationError):
    """An outgoing call in an open transaction: its key could not be committed before the first
    byte. Nothing was sent.

    Make the call after COMMIT (`transaction.on_commit`); or type guarantee="lease", and make it
    outside atomic(), in a step that is not transactional.
    """

    delivery = "failed"


class CallWithoutName(ConfigurationError):
    """Nothing names this outgoing call. Nothing was sent.

    Make it inside `with outgoing("order-17"):`, or in a step, in its own thread; with httpx, type
    extensions={"idempotency": "order-17"}. If it may be sent without a key, type
    require_names=False.
    """

    delivery = "failed"


class StepNamesOneCall(ConfigurationError):
    """The name of this step belongs to an outgoing call that has its response already. Nothing was
    sent.

    Make each call in a step of its own, or inside `with outgoing("…"):`.
    """

    delivery = "failed"


class StreamedRequest(ConfigurationError):
    """An outgoing call whose body is a stream cannot be sent again. Nothing was sent.

    Read the body first, and pass bytes.
    """

    delivery = "failed"


class OutsideTransaction(ConfigurationError):
    """outbox.send() outside a transaction: the message could be sent although the effect fails, or
    the reverse.

    Call it inside the transaction.atomic() that writes the effect, on the same database, or name
    that with using=….
    """

    delivery = "failed"


class AppendOnly(IdempotencyError):
    """The audit trail is written once: its rows are not changed or deleted. `manage.py
    purge_idempotency` ends their retention.
    """

    delivery = "failed"


class BrokerUnavailable(IdempotencyError):
    """The broker cannot be reached. Its messages stay in the outbox, and the relay reconnects."""

    delivery = "failed"


# -------------------------------------------------------------------------------------- a lost race


class LostRace(Problem):
    """Other transactions were in the way, and nothing that this one wrote is kept. Send it again
    with the same key.
    """

    status = 503
    code = "try-again"
    title = "Other transactions were in the way"
    retry = "same-key"
    # This one did nothing that is kept, but an earlier one may have.
    operation_state = "unknown"
    outcome = "contended"
    retry_after = "1"
    arises = staticmethod(_always)
    delivery = "later"


class LeaseLost(IdempotencyError):
    """The lease ended before its operation: another may be running the work by now. This result is
    not stored.
    """

    delivery = "later"


class OwnershipLost(InProgress):
    """Another request with this idempotency key took over, and nothing of this one is kept. Send it
    again with the same key.
    """

    delivery = "later"
