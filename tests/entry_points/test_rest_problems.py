"""Our problems in a DRF project: its exception handler wins; without one they are problem
documents.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from rest_framework.response import Response
from rest_framework.views import exception_handler

from .conftest import KEY, Connect, Sender

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("tests.entry_points.urls"),
]

ENTRY_POINTS = ("mixin", "adapted", "rest-class", "above", "below")
PAGE = "https://api.example.com/problems/"
LINK = f'<{PAGE}#request-mismatch>; rel="describedby"'


def enveloping(exc: Exception, context: dict[str, Any]) -> Response | None:
    """Handle exceptions as a project does that has one shape for all errors."""
    assert context["view"] is not None
    response = exception_handler(exc, context)
    if response is not None:
        response.data = {
            "error": {
                "message": str(exc),
                "code": getattr(exc, "default_code", ""),
                "codes": _codes(exc),
            }
        }
        response.headers["X-Envelope"] = "yes"
    return response


def _codes(exc: Any) -> Any:
    return exc.get_codes() if hasattr(exc, "get_codes") else None


def helpless(exc: Exception, context: dict[str, Any]) -> Response | None:
    return None


@pytest.fixture(params=ENTRY_POINTS)
def rest_entry_point(request: pytest.FixtureRequest, user: User, connect: Connect) -> Sender:
    return connect(f"/{request.param}/is-authenticated/", user)


def mismatch(send: Sender) -> Any:
    assert send(key="secret-key-0815").status_code == 201
    return send({"amount": 7}, key="secret-key-0815")


def test_a_project_without_a_handler_gets_problem_documents(
    rest_entry_point: Sender, settings: Any
) -> None:
    """A problem has type, title, status, detail and code, with a Link to the project's page about
    it.
    """
    settings.IDEMPOTENCY = {"PROBLEM_DOCS": PAGE}
    answer = mismatch(rest_entry_point)
    document = answer.json()
    assert (answer.status_code, answer["Content-Type"]) == (422, "application/problem+json")
    assert set(document) == {
        *("type", "title", "status", "detail", "code"),
        *("retry", "operation_ref", "operation_state", "safe_new_key"),
    }
    assert (document["code"], document["status"]) == ("request-mismatch", 422)
    assert document["type"] == f"{PAGE}#request-mismatch"
    assert answer["Link"] == LINK


def test_a_middleware_finds_data_on_every_response(rest_entry_point: Sender) -> None:
    """REST framework's responses have `data`, so projects, and their tests, read it from replays
    and problems as well.
    """
    send = rest_entry_point
    first, replay, problem = send(), send(), send({"amount": 7})
    assert first.data["id"] == replay.data["id"]
    assert replay["Idempotency-Status"] == "replayed"
    assert (problem.data["code"], problem.data["status"]) == ("request-mismatch", 422)
    assert problem.data == problem.json()
    assert send(key="a,b").data["code"] == "key-malformed"


def test_a_refusal_without_a_principal_has_data() -> None:
    """So has one of a view that authenticates nobody."""
    response: Any = Client().post("/mixin/open/", headers={"Idempotency-Key": KEY})
    assert response.data["code"] == "scope-required"


def test_data_of_a_projects_handler(rest_entry_point: Sender, settings: Any) -> None:
    """It is what the handler has set."""
    settings.REST_FRAMEWORK = {
        **settings.REST_FRAMEWORK,
        "EXCEPTION_HANDLER": f"{__name__}.enveloping",
    }
    answer = mismatch(rest_entry_point)
    assert answer.data["error"]["codes"] == "request-mismatch"
    assert answer.data == answer.json()


def test_a_problem_contains_neither_the_key_nor_the_response(any_entry_point: Sender) -> None:
    """A client that sends another body learns nothing about the first."""
    first = any_entry_point(key="secret-key-0815")
    answer = any_entry_point({"amount": 7}, key="secret-key-0815")
    everything = answer.content.decode() + str(answer.headers)
    assert answer.status_code == 422
    assert "secret-key-0815" not in everything
    assert first.content.decode() not in everything
    malformed = any_entry_point(key="secret,key")
    assert "secret,key" not in malformed.content.decode() + str(malformed.headers)


@pytest.fixture(
    params=[
        *(f"/{entry_point}/is-authenticated/" for entry_point in ENTRY_POINTS),
        "/decorator/login-required/",
        "/middleware/login-required/",
    ]
)
def any_entry_point(request: pytest.FixtureRequest, user: User, connect: Connect) -> Sender:
    return connect(request.param, user)


def test_a_projects_handler_gives_its_shape(rest_entry_point: Sender, settings: Any) -> None:
    """Status and code are ours, the body is the project's, and our headers are kept."""
    settings.IDEMPOTENCY = {"PROBLEM_DOCS": PAGE}
    settings.REST_FRAMEWORK = {
        **settings.REST_FRAMEWORK,
        "EXCEPTION_HANDLER": f"{__name__}.enveloping",
    }
    answer = mismatch(rest_entry_point)
    assert (answer.status_code, answer["Content-Type"], answer["X-Envelope"]) == (
        422,
        "application/json",
        "yes",
    )
    assert answer.json()["error"]["codes"] == "request-mismatch"
    assert answer["Link"] == LINK
    assert answer["Cache-Control"] == "no-store"


def test_a_projects_handler_keeps_retry_after(
    rest_entry_point: Sender, settings: Any, monkeypatch: Any
) -> None:
    """The client learns when to retry, whatever the body looks like."""
    from django_idempotency.core.rules import Busy
    from django_idempotency.engine.operation import Operation

    settings.REST_FRAMEWORK = {
        **settings.REST_FRAMEWORK,
        "EXCEPTION_HANDLER": f"{__name__}.enveloping",
    }
    monkeypatch.setattr(Operation, "open", lambda self, **_: Busy(retry_after=7))
    answer = rest_entry_point(key=KEY)
    assert (answer.status_code, answer["Retry-After"]) == (409, "7")
    assert answer.json()["error"]["codes"] == "in-progress"


def test_a_handler_that_answers_nothing_is_a_failure_of_the_project(
    rest_entry_point: Sender, settings: Any
) -> None:
    """The result is a 500, as for every other exception that the handler does not know, and nothing
    runs.
    """
    settings.REST_FRAMEWORK = {
        **settings.REST_FRAMEWORK,
        "EXCEPTION_HANDLER": f"{__name__}.helpless",
    }
    assert mismatch(rest_entry_point).status_code == 500
