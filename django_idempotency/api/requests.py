"""The names of `api` that are about requests, their views and their responses.

Of the request: `Document` is a request as expressions see it, `selected_facts()` selects from it,
and `compiled()` raises `ValueError` for what is no expression. `in_any_language(request, path)`
takes the language off a path. `fits(request)` and `is_in_memory(request)` say if a body may be
read, or was, and `require_bounded(request, limit)` raises `RequestTooLarge` for one of more bytes.

Of its view: `own_policy(callback, method)` is the policy of a view that guards itself, as far as it
is known before a request, or `None`; `resolve_policy(policy)` makes a `Resolved` of it, and raises
`ConfigurationError` for one that contradicts the settings. `ViewKind` says how the views of another
package are guarded, and `EXEMPT` is its reason for those that need no guard.

Of its key: `scope_of(request, user, resolved, key)` says whose it is, and is `None` for a client
that is not known; `issue_key(scope, now)` makes a key that is for that scope only.

Of the response: `speak(request, dialect)` says in which dialect a request is answered, and
`refer_to(request, record)` lets a problem name another record than the request's own.
`problem_response()` and `aproblem_response()` make the response to a problem; with the headers
`FINAL` it tells a client not to send the request again.
"""

from __future__ import annotations

from ..http.bodies import fits, is_in_memory, require_bounded
from ..http.counting import in_any_language
from ..http.exchange import refer_to, speak
from ..http.issued_keys import issue as issue_key
from ..http.kinds import EXEMPT, ViewKind
from ..http.plan import resolve_policy
from ..http.problems import aproblem_response, problem_response
from ..http.responses import FINAL
from ..http.selection import Document, compiled, selected_facts
from ..http.views import own_policy
from ..scopes import scope_of

__all__ = [
    "EXEMPT",
    "FINAL",
    "Document",
    "ViewKind",
    "aproblem_response",
    "compiled",
    "fits",
    "in_any_language",
    "is_in_memory",
    "issue_key",
    "own_policy",
    "problem_response",
    "refer_to",
    "require_bounded",
    "resolve_policy",
    "scope_of",
    "selected_facts",
    "speak",
]
