"""The names of `api` that are about requests, their views and their responses.

`Document` is a request as expressions see it, `selected_facts()` selects from it, and `compiled()`
raises `ValueError` for what is no expression. `in_any_language(request, path)` takes the language
off a path. `fits(request)` and `is_in_memory(request)` say if a body may be read, or was.
`refer_to(request, record)` lets a problem name another record than the request's own.
`problem_response()` and `aproblem_response()` make the response to a problem; with the headers
`FINAL` it tells a client not to send the request again. `ViewKind` says how the views of another
package are guarded, and `EXEMPT` is its reason for those that need no guard.
"""

from __future__ import annotations

from ..http.bodies import fits, is_in_memory
from ..http.counting import in_any_language
from ..http.exchange import refer_to
from ..http.kinds import EXEMPT, ViewKind
from ..http.problems import aproblem_response, problem_response
from ..http.responses import FINAL
from ..http.selection import Document, compiled, selected_facts

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
    "problem_response",
    "refer_to",
    "selected_facts",
]
