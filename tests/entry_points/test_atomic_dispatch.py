"""A transaction of the project's around `dispatch()`: the guard joins it, and record and work end
together.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, connections, transaction
from django.urls import path
from django.utils.decorators import method_decorator
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import idempotent
from django_idempotency.core.records import Status
from django_idempotency.models import IdempotencyRecord
from django_idempotency.rest_framework import IdempotentViewMixin

from .conftest import Connect
from .test_request_transactions import labels, write

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]


@pytest.fixture(params=[True, False], ids=["atomic-requests", "autocommit"], autouse=True)
def atomic_requests(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    asked: bool = request.param
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", asked)
    return asked


class Paying(APIView):
    """Writes before its handler and in it, and ends as the client asks."""

    def initial(self, request: Any, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        write("initial")

    def post(self, request: Any) -> Any:
        write("handler")
        match request.data["how"]:
            case "validation":
                raise exceptions.ValidationError("no")
            case "raise":
                raise LookupError
            case "nothing":
                return None
            case "exit":
                raise SystemExit
            case "rollback":
                connection.connection.rollback()
        return Response({"how": request.data["how"]}, status=201)


class Atomic(Paying):
    @transaction.atomic
    def dispatch(self, *args: Any, **kwargs: Any) -> Any:
        response = super().dispatch(*args, **kwargs)
        if response.status_code == 201 and b"late" in getattr(response, "rendered_content", b""):
            raise LookupError
        return response


around = method_decorator(transaction.atomic, name="dispatch")
CLASSES: dict[str, Any] = {
    "adapted": around(type("Adapted", (Paying,), {})),
    "adapted-inherited": Atomic,
    "mixed": around(type("Mixed", (IdempotentViewMixin, Paying), {})),
    "mixed-above": type("MixedAbove", (IdempotentViewMixin, Atomic), {}),
    "decorated-below": around(idempotent()(type("Below", (Paying,), {}))),
    "decorated-above": idempotent()(around(type("Above", (Paying,), {}))),
}
urlpatterns = [path(f"{way}/", cls.as_view()) for way, cls in CLASSES.items()]

every_way = pytest.mark.parametrize("way", CLASSES)


@every_way
def test_the_first_is_stored_and_the_second_replayed(
    way: str, user: User, connect: Connect
) -> None:
    """There is one effect, and the retry gets the first response."""
    send = connect(f"/{way}/", user)
    first, retry = send({"how": "201"}), send({"how": "201"})
    assert (first.status_code, first["Idempotency-Status"]) == (201, "created")
    assert (retry.status_code, retry["Idempotency-Status"], retry.json()) == (
        201,
        "replayed",
        first.json(),
    )
    assert labels().count("handler") == 1
    assert send({"how": "202"}).status_code == 422
    assert not connection.in_atomic_block


@every_way
def test_a_handler_that_fails_leaves_nothing(way: str, user: User, connect: Connect) -> None:
    """An exception, or an `AssertionError` of DRF's, rolls back the work and frees the key, so the
    retry runs.
    """
    send = connect(f"/{way}/", user)
    for how in ("raise", "raise", "nothing", "exit"):
        key = how * 8
        if how == "exit":
            with pytest.raises(SystemExit):
                send({"how": how}, key=key)
        else:
            failed = send({"how": how}, key=key)
            assert (failed.status_code, failed["Idempotency-Status"]) == (500, "failed")
        assert (labels(), connection.in_atomic_block) == ([], False)
    assert not IdempotencyRecord.objects.filter(status=Status.COMPLETED).exists()


@every_way
def test_a_refusal_is_rolled_back_as_without_a_key(
    way: str, user: User, connect: Connect, atomic_requests: bool
) -> None:
    """DRF marks the transactions of ATOMIC_REQUESTS for rollback, this one included; the key is
    free.
    """
    send = connect(f"/{way}/", user)
    bare = send({"how": "validation"}, key=None)
    written = labels()
    assert written == ([] if atomic_requests else ["initial", "handler"])
    refused = send({"how": "validation"})
    assert (refused.status_code, refused.content, refused["Idempotency-Status"]) == (
        400,
        bare.content,
        "released",
    )
    assert labels() == 2 * written
    assert send({"how": "201"})["Idempotency-Status"] == "created"


@pytest.mark.parametrize("way", ["adapted-inherited", "mixed-above"])
def test_what_fails_after_the_response_takes_the_record_along(
    way: str, user: User, connect: Connect
) -> None:
    """The record is in the project's transaction, so nothing is replayed that was rolled back."""
    send = connect(f"/{way}/", user)
    for _ in range(2):
        failed = send({"how": "late"})
        assert (failed.status_code, failed["Idempotency-Status"]) == (500, "unknown")
        assert (labels(), IdempotencyRecord.objects.count()) == ([], 0)


@every_way
def test_a_transaction_that_the_handler_has_ended(
    way: str, user: User, connect: Connect, atomic_requests: bool
) -> None:
    """The client gets a problem, or an error of the project's own transaction; never a response
    without its writes.
    """
    response = connect(f"/{way}/", user)({"how": "rollback"})
    assert response.status_code in (500, 503)
    assert "handler" not in labels()
    assert not IdempotencyRecord.objects.filter(status=Status.COMPLETED).exists()
