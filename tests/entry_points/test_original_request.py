"""`Original-Request`: the id of the request that did the work, on its response and on every replay
of it.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.test import override_settings

from django_idempotency import Policy, idempotent
from django_idempotency.errors import StoreUnavailable
from django_idempotency.http.admission import request_id_of
from django_idempotency.http.plan import resolve_policy
from django_idempotency.models import IdempotencyRecord
from django_idempotency.stores.memory import MemoryStore

from .conftest import KEY, Connect, Sender

NAME = "Original-Request"


def sent_with(value: Any, header: str = "HTTP_X_REQUEST_ID") -> HttpRequest:
    request = HttpRequest()
    request.META[header] = value
    return request


@pytest.mark.unit
@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("req_1", "req_1"),
        (UUID(int=1), str(UUID(int=1))),  # of a middleware
        ("!" * 128, "!" * 128),
        ("!" * 129, ""),  # too long to keep
        ("", ""),
        ("a b", ""),
        ("a\r\nSet-Cookie: x", ""),
        ("a\n", ""),
        ("caf\xe9", ""),
        ("ключ", ""),
    ],
)
def test_what_a_client_sends(sent: Any, kept: str) -> None:
    """A client's id is kept, searched and sent back, so anything but short, visible ASCII counts as
    none.
    """
    assert request_id_of(sent_with(sent), resolve_policy(Policy())) == kept


@pytest.mark.unit
def test_its_header_is_a_setting() -> None:
    """`REQUEST_ID_HEADER` names the header; with `None` no header is read."""
    for header, kept in (("X-Amzn-Trace-Id", "1"), ("X-Request-ID", ""), (None, "")):
        with override_settings(IDEMPOTENCY={"REQUEST_ID_HEADER": header}):
            assert (
                request_id_of(sent_with("1", "HTTP_X_AMZN_TRACE_ID"), resolve_policy(Policy()))
                == kept
            )


@pytest.mark.django_db(transaction=True)
class TestSent:
    def test_the_clients_id(self, entry_point: Sender) -> None:
        """Every replay names the request that did the work, not the retry."""
        first, *retries = (
            entry_point(headers={"X-Request-ID": f"req_{number}"}) for number in range(3)
        )
        assert [answer[NAME] for answer in (first, *retries)] == ["req_0"] * 3
        assert [answer["Idempotency-Status"] for answer in retries] == ["replayed"] * 2

    def test_an_id_of_ours(self, entry_point: Sender) -> None:
        """Without an id the first response has one of ours, and a replay the same."""
        first, retry = entry_point(), entry_point(headers={"X-Request-ID": "req_1"})
        assert first[NAME] == retry[NAME] == str(UUID(first[NAME]))

    def test_a_failed_run_is_not_the_original(self, entry_point: Sender) -> None:
        """After a refusal, the next run is the one that does the work, and that is named."""
        assert (
            entry_point({"amount": -1, "currency": "inr"}, headers={"X-Request-ID": "req_1"})[NAME]
            == "req_1"
        )
        assert [
            entry_point(headers={"X-Request-ID": sent})[NAME] for sent in ("req_2", "req_3")
        ] == ["req_2"] * 2

    def test_no_key_no_id(self, user: User, connect: Connect) -> None:
        """A request without a key gets none, and neither does a problem."""
        send = connect("/plain/charges/", user)
        assert NAME not in send(key=None, headers={"X-Request-ID": "req_1"})
        send()
        assert NAME not in send({"amount": 1, "currency": "inr"})

    def test_a_response_that_was_not_stored(self, rf: Any, user: User) -> None:
        """Its retry cannot be answered, but it names the request to look up.

        A view's own header is replaced.
        """

        @idempotent(max_body=0)
        def view(request: HttpRequest) -> HttpResponse:
            return HttpResponse("long", headers={NAME: "req_of_another_service"})

        answers = []
        for sent in ("req_1", "req_2"):
            request = rf.post("/", headers={"Idempotency-Key": KEY, "X-Request-ID": sent})
            request.user = user
            answers.append(view(request))
        assert [(answer.status_code, answer[NAME]) for answer in answers] == [
            (200, "req_1"),
            (409, "req_1"),
        ]
        assert "Original" not in IdempotencyRecord.objects.get().response_headers


class Unreachable(MemoryStore):
    def claim(self, ticket: Any) -> Any:
        raise StoreUnavailable


def test_without_a_record_there_is_none(rf: Any) -> None:
    """What runs degraded has no record to find."""

    @idempotent(
        on_store_failure="open", store="unreachable", guarantee="lease", scope=lambda request: "x"
    )
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse("done")

    stores = {"unreachable": {"BACKEND": f"{__name__}.Unreachable"}}
    with override_settings(IDEMPOTENCY={"STORES": stores}):
        answer = view(rf.post("/", headers={"Idempotency-Key": KEY, "X-Request-ID": "req_1"}))
    assert (answer["Idempotency-Status"], NAME in answer) == ("degraded", False)
