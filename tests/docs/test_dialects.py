"""The page of keys says for whom each dialect is, and what its words mean."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client, override_settings
from django.urls import path

from django_idempotency import idempotent
from django_idempotency.contrib.dialects import Repeatability
from tests.support.dialects import DIALECTS, SHIPPED

from .pages import code, table, text

#: Those that remember a 500, and carry their key in a header.
REMEMBERING = [
    name
    for name, each in DIALECTS.items()
    if 500 in (each.remembers or ()) and each.carrier != "body"
]
RUNS: list[str] = []


def breaks(request: HttpRequest) -> HttpResponse:
    RUNS.append("raised")
    raise RuntimeError


def refuses(request: HttpRequest) -> HttpResponse:
    RUNS.append("returned")
    return HttpResponse(status=500)


urlpatterns = [
    path(f"{name}/{view.__name__}", idempotent(profile=DIALECTS[name], scope=lambda _: "all")(view))
    for name in REMEMBERING
    for view in (breaks, refuses)
]


@pytest.mark.any_database
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", REMEMBERING)
def test_an_exception_is_not_remembered(name: str) -> None:
    """A 500 that was returned is replayed; after one of an exception the retry runs."""
    profile, key, client = DIALECTS[name], str(uuid4()), Client(raise_request_exception=False)
    sent = {profile.field: f'"{key}"' if profile.spelling == "quoted" else key}
    RUNS.clear()
    with override_settings(ROOT_URLCONF=__name__):
        for view in ("breaks", "refuses"):
            assert {client.post(f"/{name}/{view}", headers=sent).status_code for _ in range(2)} == {
                500
            }
            sent = {profile.field: sent[profile.field].replace(key, key := str(uuid4()))}
    assert RUNS == ["raised", "raised", "returned"]


def test_who_remembers() -> None:
    assert "stripe" in REMEMBERING


def test_the_guide_names_every_dialect() -> None:
    """The guide says for whom each dialect is."""
    rows = table("how-to/keys.md", "| your clients |")
    named = [code(row[1]).strip('"()').lower() for row in rows if row[1].startswith("`")]
    assert named == [each.name for each in SHIPPED]


def test_the_window() -> None:
    """The state table has the window of the code."""
    hours, minutes = Repeatability.window / 3600, Repeatability.ahead / 60
    assert f"more than {hours:g} hours ago, or more than {minutes:g} minutes ahead" in text(
        "how-to/keys.md"
    )
