"""`operation_ref`, `operation_state` and `safe_new_key`: what every problem about a known record
says of it.
"""

from __future__ import annotations

import io
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db.models import F
from django.test import Client
from django.urls import path
from rest_framework.exceptions import APIException
from rest_framework.response import Response

from django_idempotency.contrib.publishing.by_key import IdempotencyKeyView
from django_idempotency.core.hashing import operation_ref
from django_idempotency.core.records import Status
from django_idempotency.models import IdempotencyRecord
from testproject.payments.views import ChargeViewSet
from testproject.urls import urlpatterns as routes
from tests.support.factories import AdminFactory

from .conftest import KEY, Connect, Sender

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
]

urlpatterns = [*routes, path("keys/<path:key>", IdempotencyKeyView.as_view())]
MEMBERS = ("operation_ref", "operation_state", "safe_new_key")


def said(response: Any) -> tuple[Any, ...]:
    document = response.json()
    return document["code"], *(document.get(name) for name in MEMBERS)


def expected() -> str:
    from django.conf import settings

    return operation_ref(settings.SECRET_KEY, IdempotencyRecord.objects.get().pk)


def test_every_entry_point_says_it(entry_point: Sender) -> None:
    """The reference is the same in each problem about the key, on each attempt."""
    # The view's own 400.
    assert "operation_ref" not in entry_point({"amount": -1, "currency": "inr"}).json()
    first = entry_point()
    assert first.status_code == 201
    other = {"amount": 1, "currency": "inr"}
    assert said(entry_point(other)) == ("request-mismatch", expected(), "completed", False)
    IdempotencyRecord.objects.update(response_body=None)
    assert said(entry_point()) == ("response-not-stored", expected(), "completed", False)
    running = {"status": Status.RUNNING, "completed_at": None, "lease_until": F("expires_at")}
    IdempotencyRecord.objects.update(**running)
    assert said(entry_point()) == ("in-progress", expected(), "running", False)
    assert said(entry_point(other)) == ("request-mismatch", expected(), "running", False)


def test_a_problem_about_no_record_has_none(entry_point: Sender) -> None:
    """What an earlier request with the key has done is not looked up for it."""
    assert said(entry_point(key="a,b")) == ("key-malformed", None, None, None)


def test_the_view_of_keys_says_it(connect: Connect, user: User, browser: Client) -> None:
    """A client that only asks gets the same reference."""
    connect("/plain/charges/", user)()
    assert browser.get(f"/keys/{KEY}").json()["state"] == "completed"
    assert said(browser.get("/keys/another-key")) == ("key-unknown", None, None, None)


def test_keys_of_two_users_have_two_references(
    connect: Connect, user: User, other_user: User
) -> None:
    """It tells nothing about the key, nor the user."""
    refs = set()
    for each in (user, other_user):
        send = connect("/plain/charges/", each)
        send()
        refs.add(send({"amount": 1, "currency": "inr"}).json()["operation_ref"])
    assert len(refs) == 2


def test_an_own_exception_handler(
    connect: Connect, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A project's handler finds the members on the problem."""

    def handler(error: Any, context: Any) -> Response:
        assert isinstance(error, APIException)
        return Response(
            {"ref": error.problem.extensions["operation_ref"]},  # type: ignore[attr-defined]
            status=error.status_code,
        )

    monkeypatch.setattr(ChargeViewSet, "get_exception_handler", lambda self: handler)
    send = connect("/api/charges/", user)
    send()
    assert send({"amount": 1, "currency": "inr"}).json() == {"ref": expected()}


def test_support_finds_the_record(connect: Connect, user: User) -> None:
    """In the admin's search and by the command, as the client has quoted it."""
    send = connect("/plain/charges/", user)
    send()
    ref = send({"amount": 1, "currency": "inr"}).json()["operation_ref"]
    connect("/plain/charges/", user)(key="another-" + KEY)
    staff = Client()
    staff.force_login(AdminFactory())
    page = staff.get(
        "/admin/django_idempotency/idempotencyrecord/", {"q": ref.upper()}
    ).content.decode()
    assert str(IdempotencyRecord.objects.get(key=KEY).pk) in page
    assert str(IdempotencyRecord.objects.exclude(key=KEY).get().pk) not in page
    shown = io.StringIO()
    call_command("idempotency_record", ref, stdout=shown)
    assert all(text in shown.getvalue() for text in (KEY, ref, "completed"))
    call_command("idempotency_record", ref, "--expire", stdout=shown)
    assert "Expired." in shown.getvalue()


@pytest.mark.parametrize(
    ("ref", "says"),
    [("op_guessed", "is not an operation_ref"), ("user:auth.user:7", "is not an operation_ref")],
)
def test_the_command_refuses_what_is_none(ref: str, says: str) -> None:
    """A reference that the project has not signed, and a scope without a key."""
    with pytest.raises(CommandError, match=says):
        call_command("idempotency_record", ref)


def test_a_reference_whose_record_is_gone(connect: Connect, user: User) -> None:
    """The command says so, without a scope and a key that it does not know."""
    connect("/plain/charges/", user)()
    ref = expected()
    IdempotencyRecord.objects.all().delete()
    with pytest.raises(CommandError, match="has no such record"):
        call_command("idempotency_record", ref)
