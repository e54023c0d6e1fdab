"""The published policies: as JSON, as a page, and by the command."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.http import HttpRequest
from django.test import Client, override_settings
from django.urls import path

from django_idempotency import OnTakeover
from django_idempotency.contrib.limits import FreshKeys, Suspect
from django_idempotency.contrib.publishing.policies import (
    iso_duration,
    published,
    published_problems,
)
from django_idempotency.contrib.publishing.views import IdempotencyPolicyView
from django_idempotency.core.policy import Policy
from django_idempotency.errors import KeyMissing, Problem
from django_idempotency.http.problems import problem_response

from .urls import urlpatterns as views

pytestmark = pytest.mark.urls(__name__)

ADDRESS = "/.well-known/idempotency-policy"
urlpatterns = [
    path(
        ".well-known/idempotency-policy", IdempotencyPolicyView.as_view(), name="idempotency-policy"
    ),
    *views,
]


@pytest.fixture
def get(client: Client) -> Any:
    return lambda **headers: client.get(ADDRESS, headers=headers)


def test_json(get: Any) -> None:
    """A program gets each guarded route, and asks again only for what has changed."""
    response = get()
    found = {(each["method"], each["path"]): each for each in response.json()["policies"]}
    assert found["POST", "/charges/"]["required"] is True
    assert found["POST", "/choosing/"]["varies"] is True
    assert ("POST", "/documented/{pk}/") in found
    assert ("DELETE", "/documented/{pk}/") not in found
    assert (response["Content-Type"], response["Vary"]) == ("application/json", "Accept")
    assert get(**{"If-None-Match": response["ETag"]}).status_code == 304
    with override_settings(IDEMPOTENCY={"TTL": 60}):
        assert get(**{"If-None-Match": response["ETag"]}).status_code == 200


def test_a_page_for_people(get: Any) -> None:
    """A browser gets the same as a page, under an ETag of its own."""
    page = get(Accept="text/html,application/xhtml+xml,*/*;q=0.8")
    assert page["Content-Type"].startswith("text/html")
    text = page.content.decode()
    assert "<code>/charges/</code>" in text
    assert "key-missing" in text
    assert "optional; a UUID" in text
    assert "1 to 255 characters, <code>^(?:order-[0-9]+)$</code>" in text
    assert page["ETag"] != get()["ETag"]


@override_settings(IDEMPOTENCY={"PROBLEM_DOCS": "https://example.com/problems"})
def test_problems_link_to_it() -> None:
    """The problem's own page comes first."""
    problem = problem_response(KeyMissing(), HttpRequest())
    page, policy = problem["Link"].split(", ")
    assert page == '<https://example.com/problems#key-missing>; rel="describedby"'
    assert policy == f'<{ADDRESS}>; rel="describedby"'


@pytest.mark.urls("tests.contrib.publishing.irreversible_urls")
def test_a_pattern_that_cannot_be_reversed() -> None:
    """Django then reverses nothing. A problem is sent without the link."""
    assert "Link" not in problem_response(KeyMissing(), HttpRequest())


def test_the_command() -> None:
    """It prints a table for the project's documentation, or the same JSON."""
    table, document = StringIO(), StringIO()
    call_command("idempotency_routes", "charges", policy="md", stdout=table)
    call_command("idempotency_routes", "charges", policy="json", stdout=document)
    assert len(table.getvalue().splitlines()) == 3
    assert "`Idempotency-Key`, required | P7D | atomic | 2XX 3XX 4XX, not 400" in table.getvalue()
    assert json.loads(document.getvalue())[0]["lifetime"] == "P7D"


def test_what_only_observes_is_not_published(get: Any) -> None:
    """Clients could not rely on it."""
    with override_settings(IDEMPOTENCY={"MODE": "django_idempotency.contrib.observe.OBSERVE"}):
        assert get().json() == {"policies": []}


@override_settings(IDEMPOTENCY={"LEASE": 90000, "GUARANTEE": "lease"})
def test_settings_that_contradict_each_other(get: Any) -> None:
    """It says what to type, instead of publishing what does not hold."""
    with pytest.raises(ImproperlyConfigured, match="make lease shorter than ttl"):
        get()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (86400, "P1D"),
        (5400, "PT1H30M"),
        (90061, "P1DT1H1M1S"),
        (0.5, "PT0.5S"),
        (60, "PT1M"),
        (0, "PT0S"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert iso_duration(seconds) == text


def test_what_slows_and_refuses_is_published() -> None:
    """The limit of new keys, and the refusal of duplicates, each with its problem; a policy without
    them says nothing.
    """
    found = published(Policy(extensions=[FreshKeys("5/10m"), Suspect("body.card", refuse=True)]))
    assert found["new_keys"] == [{"limit": 5, "window": "PT10M"}]
    assert found["duplicates"] == {"within": "PT5M", "then": "refuse"}
    assert (found["problems"]["too-many-keys"], found["problems"]["possible-duplicate"]) == (
        429,
        409,
    )
    # What is only reported is not the client's.
    for policy in (
        Policy(),
        Policy(extensions=[Suspect("body.card")]),
    ):
        plain = published(policy)
        assert not {"new_keys", "duplicates"} & plain.keys()
        assert (
            not {"too-many-keys", "possible-duplicate", "operation-held"} & plain["problems"].keys()
        )
    assert (
        "operation-held"
        in published(Policy(guarantee="lease", extensions=[OnTakeover(print)]))["problems"]
    )


def test_problems_are_those_of_the_code() -> None:
    """Each code that a guarded request may get is published, with its status."""
    #: Of a request about a key; of a middleware alone; of a view's own rows; and those that share
    #: the code of another.
    others = {
        "key-not-issued",
        "key-unknown",
        "replay-unchecked",
        "deadline-passed",
        "deadline-malformed",
    }
    others |= {"already-created"}
    ours = (
        problem
        for problem in every(Problem)
        if problem.__module__.startswith("django_idempotency.")
    )
    known = {problem.code: problem.status for problem in ours if hasattr(problem, "code")}
    assert {problem.code for problem in published_problems()} == set(known) - others
    document = StringIO()
    call_command("idempotency_routes", policy="json", stdout=document)
    for each in json.loads(document.getvalue()):
        assert each["problems"].items() <= known.items()


@pytest.mark.urls("testproject.urls")
def test_the_admin_is_not_published() -> None:
    """Where it is, is not for everyone; `idempotency_routes` shows it to the project."""
    document = StringIO()
    call_command("idempotency_routes", policy="json", stdout=document)
    paths = {each["path"] for each in json.loads(document.getvalue())}
    assert "/api/charges/" in paths
    assert not [path for path in paths if path.startswith("/admin/")]


def every(cls: type[Problem]) -> list[type[Problem]]:
    return [cls, *(below for sub in cls.__subclasses__() for below in every(sub))]
