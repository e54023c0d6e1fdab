"""What each protocol requires of a refusal, asked of every refusal that a request can meet."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from django.http import HttpRequest
from django.test import RequestFactory

from django_idempotency import Policy, errors
from django_idempotency.contrib.dialects import PROFILES
from django_idempotency.contrib.dialects.commerce import UCP, UCP_VERSION, ucp_errors
from django_idempotency.contrib.publishing.schema import example_of
from django_idempotency.core.profiles import IETF
from django_idempotency.errors import Problem
from django_idempotency.http.problems import document, status_of

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


#: Profile → whether a body has what its API's clients read in each.
REQUIRED: dict[str, Callable[[Body, int], bool]] = {
    "default": problem_details,
    "ietf": problem_details,
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


def test_each_profile_is_asked() -> None:
    """A new profile says here what its API requires."""
    assert REQUIRED.keys() == PROFILES.keys()


@pytest.mark.parametrize("problem", list(problems()), ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("name", REQUIRED)
def test_what_a_refusal_must_have(name: str, problem: type[Problem]) -> None:
    """Each refusal has each member that the protocol requires, and is JSON."""
    profile, example = PROFILES[name], example_of(problem)
    for request in (None, RequestFactory().post("/")):
        body = json.loads(json.dumps(document(example, profile, request)))
        assert REQUIRED[name](body, status_of(example, profile)), body


@pytest.mark.parametrize(
    ("sent", "version"),
    [
        ({}, UCP_VERSION),
        ({"UCP-Agent": 'profile="https://agent.example/p.json"'}, UCP_VERSION),
        (
            {"UCP-Agent": 'profile="https://agent.example/p.json"; version="2026-01-11"'},
            "2026-01-11",
        ),
        ({"UCP-Agent": 'version="<script>"'}, UCP_VERSION),
    ],
)
def test_the_version_of_ucp(sent: dict[str, str], version: str) -> None:
    """It is the one that the request was let in with, and else that of the profile, which a project
    replaces.
    """
    request = RequestFactory().post("/", headers=sent)
    assert document(example_of(errors.InProgress), UCP, request)["ucp"]["version"] == version
    own = replace(UCP, errors=ucp_errors("2026-01-23"))
    expected = "2026-01-23" if version == UCP_VERSION else version
    assert document(example_of(errors.InProgress), own, request)["ucp"]["version"] == expected


# ------------------------------------------------------------------ functions that cannot be called


def two(problem: Any, status: Any) -> Any: ...


def four(problem: Any, status: Any, request: Any, more: Any) -> Any: ...


async def coroutine(problem: Any, status: Any, request: Any) -> Any: ...


def keyword(problem: Any, status: Any, *, request: Any) -> Any: ...


@pytest.mark.parametrize(
    "function", [two, four, coroutine, keyword], ids=lambda each: each.__name__
)
def test_errors_that_would_fail_at_each_refusal(function: Any) -> None:
    """A function that cannot be called with a problem, its status and the request is refused where
    it is declared.
    """
    with pytest.raises(ValueError, match=r"def errors\(problem, status, request\)"):
        replace(IETF, errors=function)


@pytest.mark.parametrize(
    "function",
    [lambda *given: {}, lambda problem, status, request=None: {}, max],
    ids=["any", "default", "built in"],
)
def test_errors_that_can_be_called(function: Any) -> None:
    """What takes three arguments does, however it says so; what does not say is believed."""
    assert replace(IETF, errors=function).errors is function


def nothing() -> Any: ...


#: Field → how many arguments it is called with.
HOOKS = {
    **dict.fromkeys(("scope", "realm", "key", "fingerprint", "keep", "headers", "on_takeover"), 1),
    **dict.fromkeys(("authorize_replay", "on_replay"), 2),
}


@pytest.mark.parametrize(("field", "count"), HOOKS.items())
def test_hooks_of_a_policy_that_would_fail_at_each_request(field: str, count: int) -> None:
    """Every function that a policy takes is asked whether it can be called as it will be."""
    more: dict[str, Any] = {"guarantee": "lease"} if field == "on_takeover" else {}
    wrong: Any
    for wrong in (nothing, four):
        with pytest.raises(ValueError, match=f"Policy\\({field}=.*function of"):
            Policy(**{field: wrong}, **more)
    right: Any = (lambda one: one) if count == 1 else (lambda one, other: one)
    assert getattr(Policy(**{field: right}, **more), field) is right


def test_a_request_that_no_server_made() -> None:
    """A refusal can be made of any request."""
    assert (
        document(example_of(errors.InProgress), UCP, HttpRequest())["ucp"]["version"] == UCP_VERSION
    )
