"""The names that an extension, an optional app or a store of your own may rely on.

They keep their meaning from one version to the next: a change of one is announced in the changelog
a version ahead. Whatever else is imported from inside the package may change at any time. What
views and functions need is in `django_idempotency` itself, the errors in
`django_idempotency.errors`, and the events in `django_idempotency.signals`.

Of policies: `Policy`; `Resolved`, one with every field set, durations in seconds; `setting(name)`,
one of `IDEMPOTENCY`; `Duration`, `is_duration()` and `seconds()`, and `DURATION`, which says in
words what one is.

Of a call: `Extension` has a say in it, and gets its `Details`; `Ticket` is what it brings to the
store, `Record` what the store knows, and `is_expired(record)` says if that counts no more;
`Status` says if its key is free, running or completed, and `Outcome` is what the work has made.
`Guarantee` is what a policy promises, and `SettledState` how a call has left its record. `Problem`
is an error with a response of its own.

Of stores and checks: a `BaseStore` keeps records, and a `Finding` is a message of `manage.py check`
whose docstring says what is wrong, and below that what to type.

Of the wire: `Dialect` is how an API speaks; `Default`, `Draft` and `Stripe` are those that a policy
may name, and `Answer` is a response whose headers one makes. `meta_name(header)` is a header's name
in `request.META`.

Of a request: `Document` is one as expressions see it, `selected_facts()` selects from it, and
`compiled()` raises `ValueError` for what is no expression; `Expression` and `Functions` are those
of JMESPath. `realm_of(policy, request)` names its tenant, and `in_any_language(request, path)`
takes the language off a path. `blinded(purpose, *parts)` hashes what nobody may guess.
`refer_to(request, record)` lets a problem name another record than the request's own.
`fits(request)` and `is_in_memory(request)` say if its body may be read, or was; `canonical_json()`
compares JSON by value, and `is_deep()` finds what is nested too deep for that. `problem_response()`
and `aproblem_response()` make the response to a problem; with the headers `FINAL` it tells a client
not to send the request again. `ViewKind` says how the views of another package are
guarded, and `EXEMPT` is its reason for those that need no guard.

Of time: `deadline(seconds)` limits the work inside it, and `CALLER_ENDS` is when the caller stops
waiting, in Unix seconds. `LONGEST` is the longest duration, ten years.

Of figures: a `Meter` receives them, each a `Metric`. A request comes from a `Source`, and has
`Facts` for its trace.
"""

from __future__ import annotations

import hashlib
import hmac
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .conf import get as setting
from .conf import meta_name
from .core.conclusions import SettledState
from .core.dialects import Answer, Default, Dialect, Draft, Stripe
from .core.expressions import Expression, Functions
from .core.hashing import canonical_json, is_deep
from .core.policy import DURATION, Duration, Policy, Resolved, is_duration, seconds
from .core.records import Guarantee, Outcome, Record, Status, Ticket
from .core.rules import expired as is_expired
from .engine.deadlines import CALLER_ENDS, LONGEST, deadline
from .engine.extensions import Details, Extension
from .errors import Problem
from .instrumentation.meters import Facts, Meter, Metric, Source
from .runtime.derivation import blinded
from .scopes import realm_of
from .stores.base import BaseStore
from .stores.check_messages import Finding

if TYPE_CHECKING:
    from .http.bodies import fits, is_in_memory
    from .http.counting import in_any_language
    from .http.exchange import refer_to
    from .http.kinds import EXEMPT, ViewKind
    from .http.problems import aproblem_response, problem_response
    from .http.responses import FINAL
    from .http.selection import Document, compiled, selected_facts

__all__ = [
    "CALLER_ENDS",
    "DURATION",
    "EXEMPT",
    "FINAL",
    "LONGEST",
    "Answer",
    "BaseStore",
    "Default",
    "Details",
    "Dialect",
    "Document",
    "Draft",
    "Duration",
    "Expression",
    "Extension",
    "Facts",
    "Finding",
    "Functions",
    "Guarantee",
    "Meter",
    "Metric",
    "Outcome",
    "Policy",
    "Problem",
    "Record",
    "Resolved",
    "SettledState",
    "Source",
    "Status",
    "Stripe",
    "Ticket",
    "ViewKind",
    "aproblem_response",
    "blinded",
    "canonical_json",
    "compiled",
    "deadline",
    "fits",
    "in_any_language",
    "is_deep",
    "is_duration",
    "is_expired",
    "is_in_memory",
    "meta_name",
    "problem_response",
    "realm_of",
    "refer_to",
    "seconds",
    "selected_facts",
    "setting",
]


def blinded(purpose: str, *parts: bytes) -> str:
    """Return 64 hex digits that stand for some values, and by which nobody can guess them.

    It is an HMAC under the secret that keys are derived with. `purpose` keeps the hashes of two
    uses apart.
    """
    hashed = framed((b"blinded", purpose.encode(), *parts))
    return hmac.new(octets(derive_secret()), hashed, hashlib.sha256).hexdigest()


#: Of a request: imported when it is used, since a worker or a function may never see one.
_OF_REQUESTS = {
    "EXEMPT": "kinds",
    "FINAL": "responses",
    "Document": "selection",
    "ViewKind": "kinds",
    "aproblem_response": "problems",
    "compiled": "selection",
    "fits": "bodies",
    "in_any_language": "counting",
    "is_in_memory": "bodies",
    "problem_response": "problems",
    "refer_to": "exchange",
    "selected_facts": "selection",
}


def __getattr__(name: str) -> Any:
    if name not in _OF_REQUESTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".http.{_OF_REQUESTS[name]}", __package__), name)
