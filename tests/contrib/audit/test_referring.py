"""`refer()`: a business id is tied to the key, once, with the work's transaction."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.http import HttpRequest, JsonResponse
from django.test import RequestFactory
from pytest_django import Settings

from django_idempotency import current_operation, idempotent, idempotent_function
from django_idempotency.contrib.audit.rows import parsed, referring_to, timeline_of
from django_idempotency.errors import ConfigurationError

from .helpers import committed, events, references

pytestmark = committed


@idempotent_function(key_prefix="refers", data_keyword_argument="order")
def pay(*, order: int, then: Any = None) -> int:
    operation = current_operation()
    assert operation is not None
    operation.refer("Payment", order)
    operation.refer("payment", str(order))  # the same
    operation.refer("payments.charge", order)
    if then is not None:
        raise then
    return order


@idempotent_function(key_prefix="refers.lease", data_keyword_argument="order", guarantee="lease")
async def apay(*, order: int) -> int:
    operation = current_operation()
    assert operation is not None
    await operation.arefer("payment", order)
    raise OSError("the provider is down")


def test_both_ways() -> None:
    """A reference finds its key, and a key its references; each of them once."""
    assert pay(order=17) == 17
    assert references() == [("payment", "17"), ("payments.charge", "17")]
    (found,) = referring_to("payment", "17")
    assert found.scope == pay.idempotency.scope
    assert [
        (each.kind, each.value) for each in timeline_of(found.record).references
    ] == references()
    assert referring_to("payment", "1") == referring_to("refund", "17") == []


def test_with_the_work() -> None:
    """In `atomic` a reference is rolled back with the work."""
    with pytest.raises(OSError, match="down"):
        pay(order=17, then=OSError("down"))
    assert references() == []


@pytest.mark.any_database
def test_a_lease() -> None:
    """In `lease` it is written at once, and stays when the work fails."""
    with pytest.raises(OSError, match="down"):
        async_to_sync(apay)(order=17)
    assert references() == [("payment", "17")]
    assert events() == ["claimed", "released"]


@pytest.mark.any_database
def test_a_view() -> None:
    @idempotent(anonymous="shared")
    def view(request: HttpRequest) -> JsonResponse:
        request.idempotency.refer("invoice", "2026-0017")  # type: ignore[attr-defined]
        return JsonResponse({}, status=201)

    assert (
        view(RequestFactory().post("/", headers={"Idempotency-Key": "k" * 20})).status_code == 201
    )
    assert references() == [("invoice", "2026-0017")]


@pytest.mark.any_database
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("", "1"),
        ("a:b", "1"),
        ("1", "1"),
        ("a" * 65, "1"),
        ("a", ""),
        ("a", None),
        ("a", "x" * 256),
        ("a", "\n"),
    ],
)
def test_what_cannot_be_kept(kind: str, value: Any) -> None:
    @idempotent_function(key_prefix="refused", data_keyword_argument="order")
    def refused(*, order: int) -> None:
        operation = current_operation()
        assert operation is not None
        operation.refer(kind, value)

    with pytest.raises(ValueError, match=r"A kind is|The value of"):
        refused(order=1)


@pytest.mark.any_database
def test_without_a_trail(settings: Settings) -> None:
    """It says what to add, and where idempotency is off it does nothing."""
    settings.IDEMPOTENCY = {}
    with pytest.raises(
        ConfigurationError,
        match=r'"django_idempotency.contrib.audit" to INSTALLED_APPS and "AUDIT": True',
    ):
        pay(order=17)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IDEMPOTENCY_DISABLED", "1")
        assert pay(order=17) == 17
    assert references() == []


@pytest.mark.unit
@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("payment:17", ("payment", "17")),
        (" Shop.Charge:17 ", ("shop.charge", "17")),
        ("a:b:c", ("a", "b:c")),
        ("payment", None),
        ("payment:", None),
        (":17", None),
        ("order 1:2", None),
    ],
)
def test_what_a_person_types(typed: str, found: Any) -> None:
    assert parsed(typed) == found
