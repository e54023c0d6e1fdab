"""What each protocol requires of a refusal, asked of every refusal that a request can meet."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.http import HttpRequest
from django.test import RequestFactory

from django_idempotency import Policy, errors
from django_idempotency.contrib.dialects import Ucp
from django_idempotency.contrib.publishing.schema import example_of
from django_idempotency.core.dialects import Dialect, Draft
from django_idempotency.errors import Problem
from django_idempotency.http.problems import body_of
from tests.support.dialects import DIALECTS, changed

Body = dict[str, Any]


def problems() -> Iterator[type[Problem]]:
    """Yield each problem that a request can meet."""
    for _, cls in inspect.getmembers(errors, inspect.isclass):
        if issubclass(cls, Problem) and hasattr(cls, "code"):
            yield cls


def text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def problem_details(body: Body, status: int) -> bool:
    """RFC 9457, as in Zalando's rule 176."""
    return (
        text(body["type"])
        and text(body["title"])
        and text(body["detail"])
        and body["status"] == status
    )


def stripe(body: Body, status: int) -> bool:
    error = body["error"]
    kinds = {"api_error", "idempotency_error", "invalid_request_error"}
    return error["type"] in kinds and text(error["code"]) and text(error["message"])


def adyen(body: Body, status: int) -> bool:
    return body["status"] == status and all(
        text(body[name]) for name in ("errorCode", "message", "errorType")
    )


def paypal(body: Body, status: int) -> bool:
    named = all(text(body[name]) for name in ("name", "message", "debug_id"))
    return named and all(text(each["issue"]) for each in body["details"])


def square(body: Body, status: int) -> bool:
    kinds = {"API_ERROR", "INVALID_REQUEST_ERROR", "RATE_LIMIT_ERROR"}
    return (
        all(each["category"] in kinds and text(each["code"]) for each in body["errors"])
        and len(body["errors"]) > 0
    )


def odata(body: Body, status: int) -> bool:
    return text(body["error"]["code"]) and text(body["error"]["message"])


def google(body: Body, status: int) -> bool:
    """`google.rpc.Code` by name. What HTTP tells apart and it does not, fails a precondition."""
    names = {
        400: "INVALID_ARGUMENT",
        403: "PERMISSION_DENIED",
        404: "NOT_FOUND",
        409: "ABORTED",
        412: "FAILED_PRECONDITION",
        413: "FAILED_PRECONDITION",
        422: "FAILED_PRECONDITION",
        429: "RESOURCE_EXHAUSTED",
        500: "INTERNAL",
        501: "UNIMPLEMENTED",
        503: "UNAVAILABLE",
    }
    error = body["error"]
    return error["code"] == status and error["status"] == names[status] and text(error["message"])


def iceberg(body: Body, status: int) -> bool:
    error = body["error"]
    return error["code"] == status and text(error["type"]) and text(error["message"])


def acp(body: Body, status: int) -> bool:
    """RFC "Agentic Checkout": a flat body; idempotency errors are invalid requests."""
    kind = (
        "invalid_request"
        if status < 500
        else {503: "service_unavailable"}.get(status, "processing_error")
    )
    return (
        set(body) == {"type", "code", "message"}
        and body["type"] == kind
        and text(body["code"])
        and text(body["message"])
    )


def ucp(body: Body, status: int) -> bool:
    """Overview: "Businesses MUST include the `ucp` field in every response".

    REST binding: `code` and `content`.
    """
    version = re.fullmatch(r"\d{4}-\d{2}-\d{2}", body["ucp"]["version"])
    return (
        version is not None
        and body["ucp"]["status"] == "error"
        and text(body["code"])
        and text(body["content"])
    )


def adcp(body: Body, status: int) -> bool:
    """ "Error handling": a code, a message, what the buyer does, and when."""
    (error,) = body["errors"]
    recovery = error["recovery"] in ("transient", "correctable", "terminal")
    must_wait = error["code"] in ("RATE_LIMITED", "IDEMPOTENCY_IN_FLIGHT")
    waits = 1 <= error["retry_after"] <= 3600 if must_wait or "retry_after" in error else True
    return (
        recovery
        and waits
        and text(error["message"])
        and body["adcp_error"]["code"] == error["code"]
    )


def mastodon(body: Body, status: int) -> bool:
    return set(body) == {"error"} and text(body["error"])


def gocardless(body: Body, status: int) -> bool:
    error = body["error"]
    named = all(
        text(error[name]) for name in ("type", "message", "documentation_url", "request_id")
    )
    return (
        named and error["code"] == status and all(text(each["reason"]) for each in error["errors"])
    )


def mollie(body: Body, status: int) -> bool:
    link = body["_links"]["documentation"]
    return (
        body["status"] == status
        and text(body["title"])
        and text(body["detail"])
        and text(link["href"])
    )


#: Dialect → whether a body has what its API's clients read in each.
REQUIRED: dict[str, Callable[[Body, int], bool]] = {
    "default": problem_details,
    "draft": problem_details,
    "stripe": stripe,
    "adyen": adyen,
    "paypal": paypal,
    "square": square,
    "repeatability": odata,
    "aip155": google,
    "zalando": problem_details,
    "iceberg": iceberg,
    "acp": acp,
    "ucp": ucp,
    "adcp": adcp,
    "mastodon": mastodon,
    "gocardless": gocardless,
    "mollie": mollie,
    "form": problem_details,
}


def test_each_dialect_is_asked() -> None:
    """A new dialect says here what its API requires."""
    assert REQUIRED.keys() == DIALECTS.keys()


@pytest.mark.parametrize("problem", list(problems()), ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("name", REQUIRED)
def test_what_a_refusal_must_have(name: str, problem: type[Problem]) -> None:
    """Each refusal has each member that the protocol requires, and is JSON."""
    profile, example = DIALECTS[name], example_of(problem)
    program = RequestFactory().post("/", headers={"Accept": "application/json"})
    for request in (None, program):
        body = json.loads(json.dumps(body_of(example, profile, request)))
        assert REQUIRED[name](body, profile.status_of(example)), body


def ucp_version(dialect: Dialect, request: HttpRequest) -> str:
    body: Any = body_of(example_of(errors.InProgress), dialect, request)
    return str(body["ucp"]["version"])


@pytest.mark.parametrize(
    ("sent", "version"),
    [
        ({}, Ucp.version),
        ({"UCP-Agent": 'profile="https://agent.example/p.json"'}, Ucp.version),
        (
            {"UCP-Agent": 'profile="https://agent.example/p.json"; version="2026-01-11"'},
            "2026-01-11",
        ),
        ({"UCP-Agent": 'version="<script>"'}, Ucp.version),
    ],
)
def test_the_version_of_ucp(sent: dict[str, str], version: str) -> None:
    """It is the one that the request was let in with, and else that of the dialect, which a
    subclass changes.
    """
    request = RequestFactory().post("/", headers=sent)
    assert ucp_version(Ucp(), request) == version
    expected = "2026-01-23" if version == Ucp.version else version
    assert ucp_version(changed(Ucp, version="2026-01-23")(), request) == expected


# ------------------------------------------------------------------ functions that cannot be called


def two(self: Any, problem: Any, status: Any) -> Any: ...


def four(self: Any, problem: Any, status: Any, request: Any, more: Any) -> Any: ...


async def coroutine(self: Any, problem: Any, status: Any, request: Any) -> Any: ...


def keyword(self: Any, problem: Any, status: Any, *, request: Any) -> Any: ...


@pytest.mark.parametrize(
    "function", [two, four, coroutine, keyword], ids=lambda each: each.__name__
)
def test_errors_that_would_fail_at_each_refusal(function: Any) -> None:
    """A method that cannot be called with a problem, its status and the request is refused where
    its class is made.
    """
    with pytest.raises(ValueError, match=r"def error_body\(self, problem, status, request\)"):
        changed(Draft, error_body=function)


@pytest.mark.parametrize(
    "function",
    [lambda *given: {}, lambda self, problem, status, request=None: {}],
    ids=["any", "default"],
)
def test_errors_that_can_be_called(function: Any) -> None:
    """What takes three arguments does, however it says so."""
    assert changed(Draft, error_body=function).error_body is function


def nothing() -> Any: ...


#: Field → how many arguments it is called with.
HOOKS = {
    **dict.fromkeys(("scope", "realm", "key", "fingerprint", "keep", "headers"), 1),
    **dict.fromkeys(("authorize_replay",), 2),
}


@pytest.mark.parametrize(("field", "count"), HOOKS.items())
def test_hooks_of_a_policy_that_would_fail_at_each_request(field: str, count: int) -> None:
    """Every function that a policy takes is asked whether it can be called as it will be."""
    wrong: Any
    for wrong in (nothing, four):
        with pytest.raises(ValueError, match=f"Policy\\({field}=.*function of"):
            Policy(**{field: wrong})
    right: Any = (lambda one: one) if count == 1 else (lambda one, other: one)
    assert getattr(Policy(**{field: right}), field) is right


def test_a_request_that_no_server_made() -> None:
    """A refusal can be made of any request."""
    assert ucp_version(Ucp(), HttpRequest()) == Ucp.version
