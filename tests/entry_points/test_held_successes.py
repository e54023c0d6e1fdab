"""A success is not sent of work that a person must look into, although its view or function has
caught the reason.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.urls import path

from django_idempotency import idempotent, idempotent_function
from django_idempotency.core.records import Status
from django_idempotency.errors import HeldForPerson, KeyTooOld
from django_idempotency.functions import current_operation
from django_idempotency.models import IdempotencyRecord
from testproject.payments.models import Effect

from .conftest import Connect, effects

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]


@idempotent()
def view(request: HttpRequest) -> HttpResponse:
    Effect.objects.create(label="written", attempt=0)
    with suppress(KeyTooOld):
        request.idempotency.derive("bank")  # type: ignore[attr-defined]
    if request.idempotency.attempt == 1:  # type: ignore[attr-defined]
        raise LookupError
    return HttpResponse(status=201)


@idempotent_function(key="order", key_prefix="catches that its key is too old")
def function(order: int) -> str:
    Effect.objects.create(label="written", attempt=0)
    operation = current_operation()
    assert operation is not None
    with suppress(KeyTooOld):
        operation.derive("bank")
    if operation.attempt == 1:
        raise LookupError
    return "done"


urlpatterns = [path("view/", view)]


@pytest.fixture(autouse=True)
def _forgetful(settings: Any) -> None:
    """The provider forgets a key after an hour."""
    settings.IDEMPOTENCY = {"PROVIDERS": {"bank": {"LIFETIME": timedelta(hours=1)}}}


def later() -> None:
    record = IdempotencyRecord.objects.get()
    IdempotencyRecord.objects.update(created_at=record.created_at - timedelta(hours=2))


def is_held() -> bool:
    record = IdempotencyRecord.objects.get()
    return bool(record.status == Status.COMPLETED and record.digest)


def test_a_view(user: User, connect: Connect) -> None:
    """Its 201 would be believed: what it wrote was rolled back, and the provider may have been paid
    before.
    """
    send = connect("/view/", user)
    assert send().status_code == 500
    later()
    for _ in range(2):
        response = send()
        assert (response.status_code, response.json()["code"]) == (409, "operation-held")
        assert response["Idempotency-Status"] == "held"
        assert (effects(), is_held()) == (0, True)


def test_a_function() -> None:
    """Its caller learns it, and no later call runs."""
    with pytest.raises(LookupError):
        function(order=1)
    later()
    for _ in range(2):
        with pytest.raises(HeldForPerson):
            function(order=1)
        assert (effects(), is_held()) == (0, True)


def test_the_errors_of_a_function_name_its_record() -> None:
    """A caller finds the record of a withheld success by its scope and key."""

    @idempotent_function(key="order", key_prefix="swallows")
    def swallows(order: int) -> str:
        row = Effect.objects.create(label="written", attempt=0)
        with suppress(Exception):
            Effect.objects.create(pk=row.pk, label="twice", attempt=0)
        return "done"

    with pytest.raises(Exception, match="rolled back") as caught:
        swallows(order=1)
    record: Any = IdempotencyRecord.objects.get()
    assert (caught.value.scope, caught.value.key) == (record.scope, record.key)  # type: ignore[attr-defined]
