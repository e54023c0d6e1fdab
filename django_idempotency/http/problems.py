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
from ..core.dialects import Dialect
from ..core.hashing import operation_ref
from ..core.rules import Busy, Contended, Late, Mismatch, Unreadable
from ..core.standings import OperationState, standing
from ..errors import InProgress, KeyExpired, LostRace, Problem, RecordUnreadable, RequestMismatch
from .counting import count_problem
from .exchange import ORIGINAL, headers_of, note, noted_of, said_of, spoken_to
from .responses import StoredResponse


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


def docs_url(problem: Problem) -> str | None:
    """Return the address of the section about a problem; `None`: the project has not set
    PROBLEM_DOCS.
    """
    page = conf.get("PROBLEM_DOCS")
    return None if page is None else f"{page}#{problem.code}"


def body_of(
    problem: Problem, profile: Dialect, request: HttpRequest | None
) -> Mapping[str, Any] | str:
    """Return the body of a problem's response: what JSON can hold, or a page.

    `None` for the request: it is an example.
    """
    problem.docs = docs_url(problem)
    return profile.error_body(problem, profile.status_of(problem), request)


def headers(problem: Problem, request: HttpRequest) -> dict[str, str]:
    """Return the headers of a problem's response, once that is noted on its request, with the links
    that the IETF draft (2.7) asks for, if there are any.
    """
    pages = [url for url in (docs_url(problem), _policy_url()) if url]
    link = {"Link": ", ".join(f'<{url}>; rel="describedby"' for url in pages)} if pages else {}
    own = {
        name: value
        for name, value in problem.headers.items()
        if name not in ("Retry-After", ORIGINAL)
    }
    return {**own, **headers_of(request, problem), **link, "Cache-Control": "no-store"}


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
    status = profile.status_of(problem)
    about = headers(problem, request)
    if profile.pages:
        about["Vary"] = "Accept"
    body = body_of(problem, profile, request)
    if isinstance(body, str):
        return StoredResponse(body, status=status, headers=about)
    return StoredResponse(
        json.dumps(body), status=status, content_type=profile.error_type, headers=about
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
        when=spoken_to(request).profile.pages,
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
