"""The names that an extension, an optional app or a store of your own may rely on.

They keep their meaning from one version to the next: a change of one is announced in the changelog
a version ahead. Whatever else is imported from inside the package may change at any time. What
views and functions need is in `django_idempotency` itself, the errors in
`django_idempotency.errors`, and the events in `django_idempotency.signals`.

Of policies: `Resolved` is one with every field set, durations in seconds; `setting(name)`,
one of `IDEMPOTENCY`; `Duration`, `is_duration()` and `seconds()`, and `DURATION`, which says in
words what one is.

Of a call: `Extension` has a say in it, and gets its `Details`; `Ticket` is what it brings to the
store, `Record` what the store knows, and `is_expired(record)` says if that counts no more;
`Status` says if its key is free, running or completed, and `Outcome` is what the work has made.
`Guarantee` is what a policy promises, and `SettledState` how a call has left its record.

Of apps: the config of an app that adds to this one has an `AppExtension` as its `extension`, a
`Setting` for each key that it adds to IDEMPOTENCY in `idempotency_settings`, and in
`idempotency_checks` the paths of its system checks. `Purging` are rows that `purge_idempotency`
deletes for it. `OperationHandle` is what a work sees of its own operation, such as
`request.idempotency`: `record_id` is the id of its record, and `is_running` says if the work runs
now. `CURRENT_STEP.get()` is the step whose body runs here, or `None`, and `EXECUTION.get()` the durable
execution: `suspends(error)` says if an error suspends it.

Of stores and checks: a `BaseStore` keeps records, `lost_race(error)` says if a database's error is
a deadlock or a lock that was not given, and a `Finding` is a message of `manage.py check` whose
docstring says what is wrong, and below that what to type.

Of the wire: `Dialect` is how an API speaks; `Default`, `Draft` and `Stripe` are those that a policy
may name, and `Answer` is a response whose headers one makes. `meta_name(header)` is a header's name
in `request.META`.

Of values: `Expression` and `Functions` are those of JMESPath, `canonical_json()` compares JSON by
value, and `is_deep()` finds what is nested too deep for that. `blinded(purpose, *parts)` hashes
what nobody may guess, and `realm_of(policy, request)` names a tenant.

Of requests: see `api.requests`, apart so that a worker which sees none need not load it.

Of time: `CALLER_ENDS` is when the caller stops waiting, in Unix seconds, and `LONGEST` the longest
duration, ten years.

Of figures: a `Meter` receives them, each a `Metric`. A request comes from a `Source`, and has
`Facts` for its trace.
"""

from __future__ import annotations

from ..conf import Setting, meta_name
from ..conf import get as setting
from ..core.conclusions import SettledState
from ..core.dialects import Answer, Default, Dialect, Draft, Stripe
from ..core.expressions import Expression, Functions
from ..core.hashing import canonical_json, is_deep
from ..core.policy import DURATION, Duration, Resolved, is_duration, seconds
from ..core.records import Guarantee, Outcome, Record, Status, Ticket
from ..core.rules import expired as is_expired
from ..engine.deadlines import CALLER_ENDS, LONGEST
from ..engine.extensions import Details, Extension
from ..instrumentation.meters import Facts, Meter, Metric, Source
from ..runtime.app_extensions import AppExtension, Purging
from ..runtime.current_step import CURRENT_STEP, EXECUTION
from ..runtime.derivation import blinded
from ..runtime.handle import OperationHandle
from ..scopes import realm_of
from ..stores.base import BaseStore
from ..stores.check_messages import Finding
from ..stores.orm.database_errors import lost_race

__all__ = [
    "CALLER_ENDS",
    "CURRENT_STEP",
    "DURATION",
    "EXECUTION",
    "LONGEST",
    "Answer",
    "AppExtension",
    "BaseStore",
    "Default",
    "Details",
    "Dialect",
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
    "OperationHandle",
    "Outcome",
    "Purging",
    "Record",
    "Resolved",
    "Setting",
    "SettledState",
    "Source",
    "Status",
    "Stripe",
    "Ticket",
    "blinded",
    "canonical_json",
    "is_deep",
    "is_duration",
    "is_expired",
    "lost_race",
    "meta_name",
    "realm_of",
    "seconds",
    "setting",
]
