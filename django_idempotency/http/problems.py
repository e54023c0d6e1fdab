"""Errors as responses: problem documents (RFC 9457), or the shape of the request's profile."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.db import connections
from django.http import HttpRequest, HttpResponse
from django.urls import NoReverseMatch, reverse

from .. import conf
from ..core.concurrency import in_thread
from ..core.hashing import operation_ref
from ..core.profiles import Profile
from ..core.rules import Busy, Contended, Late, Mismatch, Unreadable
from ..core.standings import OperationState, standing
from ..errors import InProgress, KeyExpired, LostRace, Problem, RecordUnreadable, RequestMismatch
from ..runtime.wings import wing
from .counting import count_problem
from .exchange import ORIGINAL, headers_of, note, noted_of, said_of, spoken_to
from .responses import StoredResponse

#: Begins the `type` of a problem while PROBLEM_DOCS names no page. A name, not an address: it
#: resolves to nothing.
NAMESPACE = "urn:django-idempotency:problem:"
#: The names in a profile's `errors` under which a program gets a problem document; what is a page
#: otherwise, too: see contrib.forms.pages.
DOCUMENTS = ("problem", "page")


def refusal_of(verdict: Busy | Contended | Mismatch | Late | Unreadable) -> Problem:
    """Return the problem that answers a request which neither runs nor gets a replay."""
    match verdict:
        case Busy(retry_after=seconds):
            return InProgress(headers={"Retry-After": str(seconds)})
        case Contended(retry_after=seconds):
            return LostRace(headers={"Retry-After": str(seconds)})
        case Mismatch():
            return RequestMismatch()
        case Late():
            return KeyExpired()
        case Unreadable():
            return RecordUnreadable()


def status_of(problem: Problem | type[Problem], profile: Profile) -> int:
    """Return the status of a problem, or of a kind of problem, in a profile."""
    field = problem.status_field
    return problem.status if field is None else getattr(profile, field) or problem.status


def docs_url(problem: Problem) -> str | None:
    """Return the address of the section about a problem; `None`: the project has not set
    PROBLEM_DOCS.
    """
    page = conf.get("PROBLEM_DOCS")
    return None if page is None else f"{page}#{problem.code}"


def detail(problem: Problem) -> str:
    """Return the message of a problem on one line."""
    return " ".join((problem.plainly or str(problem)).split())


def problem_document(problem: Problem, status: int, _request: object = None) -> dict[str, Any]:
    """Make a problem document (RFC 9457)."""
    return {
        "type": docs_url(problem) or NAMESPACE + problem.code,
        "title": problem.title,
        "status": status,
        "detail": detail(problem),
        "code": problem.code,
        "retry": problem.retry,
        **problem.extensions,
    }


def document(problem: Problem, profile: Profile, request: HttpRequest | None) -> Mapping[str, Any]:
    """Return the body of a problem's response.

    No key, no stored body, no stack. `None`: it is an example.
    """
    shape = problem_document if isinstance(profile.errors, str) else profile.errors
    return shape(problem, status_of(problem, profile), request)


def headers(problem: Problem, request: HttpRequest) -> dict[str, str]:
    """Return the headers of a problem's response, once that is noted on its request, with the links
    that the IETF draft (2.7) asks for, if there are any.
    """
    spoken = spoken_to(request)
    profile = spoken.profile
    pages = [url for url in (docs_url(problem), _policy_url()) if url]
    link = {"Link": ", ".join(f'<{url}>; rel="describedby"' for url in pages)} if pages else {}
    own = {name: value for name, value in problem.headers.items() if name != "Retry-After"}
    original = own.pop(ORIGINAL, None)
    if original and profile.original:
        own[profile.original] = original
    about_key = headers_of(request, status_of(problem, profile))
    return {**own, **_of_retry(problem, profile), **about_key, **link, "Cache-Control": "no-store"}


def _policy_url() -> str | None:
    """Return the address of the published policies, if the project has routed them under that
    name.
    """
    try:
        return reverse("idempotency-policy")
    except (
        NoReverseMatch,
        ValueError,
    ):  # not routed; or any of the project's patterns cannot be reversed
        return None


def _of_retry(problem: Problem, profile: Profile) -> dict[str, str]:
    """Return the headers that say whether the same request makes sense again."""
    again = problem.retry_in is not None
    found: dict[str, str] = {}
    for name in profile.retry_headers:
        match name:
            case "Retry-After":
                found |= {name: problem.headers[name]} if again else {}
            case "Transient-Error":
                found |= {name: "true"} if again else {}
            case _:
                found[name] = "true" if again else "false"
    return found


def note_problem(request: HttpRequest, problem: Problem) -> None:
    """Note on a request that its response is a problem, and on the problem what it says about the
    request's operation.
    """
    describe(problem, request)
    count_problem(request, problem)
    note(request, said_of(problem, request), original=problem.headers.get(ORIGINAL, ""))


def problem_response(problem: Problem, request: HttpRequest) -> HttpResponse:
    """Return the response to a request that met a problem."""
    profile = spoken_to(request).profile
    note_problem(request, problem)
    code = status_of(problem, profile)
    about = headers(problem, request)
    if profile.errors == "page":
        about["Vary"] = "Accept"
        page = wing("forms").page_of(problem, request, code)
        if page is not None:
            return StoredResponse(page, status=code, headers=about)
    return StoredResponse(
        json.dumps(document(problem, profile, request)),
        status=code,
        content_type="application/problem+json"
        if profile.errors in DOCUMENTS
        else "application/json",
        headers=about,
    )


async def aproblem_response(problem: Problem, request: HttpRequest) -> HttpResponse:
    """See problem_response().

    A page is rendered in a thread: its context may query a database, such as for the user.
    """
    return await in_thread(
        problem_response,
        problem,
        request,
        close=connections.close_all,
        when=spoken_to(request).profile.errors == "page",
    )


# ---------------------------------------------------------------------- which operation it is about


def describe(problem: Problem, request: HttpRequest) -> None:
    """Add to a problem what it says about the operation of a request, if that is known.

    Computed for problems only.
    """
    exchange = noted_of(request)
    if exchange is None or exchange.record is None:
        return
    record = None if exchange.operation is None else exchange.operation.record
    state = standing(problem, record=record)
    if state is not None:
        problem.extensions |= members(reference_to(exchange.record), state)


def members(reference: str, state: OperationState) -> dict[str, str | int]:
    """Return what a problem says about an operation.

    Nothing proves that a new key is safe: see `core.standings`.
    """
    return {"operation_ref": reference, "operation_state": state.value, "safe_new_key": False}


def reference_to(record: UUID) -> str:
    """Return the reference to a record."""
    return operation_ref(conf.derive_secret(), record)
