"""A guarded view that logs a guest in: the log says so, once."""

from __future__ import annotations

import pytest
from django.contrib.auth import login
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path

from django_idempotency import idempotency_exempt, idempotent
from django_idempotency.http import logins

from ..entry_points.conftest import KEY

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
]


def sign_up(request: HttpRequest) -> HttpResponse:
    login(request, User.objects.create_user(request.POST["name"]))
    return HttpResponse(status=201)


@idempotency_exempt
def exempt(request: HttpRequest) -> HttpResponse:
    return sign_up(request)


urlpatterns = [path("guarded/", idempotent(anonymous="shared")(sign_up)), path("exempt/", exempt)]


@pytest.mark.parametrize(
    ("url", "keyed", "said"), [("guarded", True, 1), ("guarded", False, 0), ("exempt", True, 0)]
)
def test_a_login_under_a_key(
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    *,
    url: str,
    keyed: bool,
    said: int,
) -> None:
    """A view under a key is named once, with the reason; one without a key, or that is exempt, is
    not.
    """
    monkeypatch.setattr(logins, "_TOLD", set())
    for number in range(2):
        headers = {"Idempotency-Key": f"{KEY}-{number}"} if keyed else {}
        client = Client()
        assert (
            client.post(f"/{url}/", {"name": f"guest-{number}"}, headers=headers).status_code == 201
        )
    found = [
        record.getMessage()
        for record in caplog.records
        if "logs a person in" in record.getMessage()
    ]
    assert len(found) == said
    assert all("@idempotency_exempt" in each for each in found)


def test_why() -> None:
    """The second tap of a guest gets the first response, and no session."""
    first, second = Client(), Client()
    for client in (first, second):
        response = client.post("/guarded/", {"name": "guest"}, headers={"Idempotency-Key": KEY})
        assert response.status_code == 201
    assert ("sessionid" in first.cookies, "sessionid" in second.cookies) == (True, False)
    assert User.objects.count() == 1
