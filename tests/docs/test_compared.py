"""The hand-written rival on the page does what the page says of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse
from django.test import RequestFactory
from django.test.utils import isolate_apps

from django_idempotency import idempotent
from testproject.payments.models import Effect
from tests.entry_points.swallowing_views import BROKEN

from .pages import DOCS, blocks


def pay(request: HttpRequest) -> JsonResponse:
    Effect.objects.create(label="paid", idempotency_key="", attempt=0)
    if b"fail" in request.body:
        raise ZeroDivisionError
    return JsonResponse({"id": Effect.objects.count()}, status=201)


@pytest.fixture
def once() -> Iterator[Any]:
    """Return the rival's decorator, with its table."""
    (code,) = [
        each.code for each in blocks(DOCS / "explanation/compared.md") if "def once" in each.code
    ]
    assert len([line for line in code.splitlines() if line.strip()]) == 28
    names: dict[str, Any] = {"__name__": "testproject.payments.rival"}
    with isolate_apps("testproject.payments"):
        exec(code, names)
    with connection.schema_editor() as editor:
        editor.create_model(names["Request"])
    yield names["once"]
    with connection.schema_editor() as editor:
        editor.delete_model(names["Request"])


def sender(view: Any, user: User) -> Any:
    """Return a function that sends a body under one key, and returns the status and the body of the
    response.
    """

    def send(**body: Any) -> tuple[int, Any]:
        request = RequestFactory().post(
            "/pay/", body, "application/json", headers={"Idempotency-Key": "k"}
        )
        request.user = user
        response = view(request)
        return response.status_code, json.loads(response.content)

    return send


@pytest.mark.django_db(transaction=True)
def test_twenty_six_lines(user: User, once: Any) -> None:
    """A retry gets the response, another body a 422, and a failure leaves nothing, not even the
    key.
    """
    send = sender(once(pay), user)
    with pytest.raises(ZeroDivisionError):
        send(fail=True)
    assert (send(amount=1), send(amount=1)) == ((201, {"id": 1}), (201, {"id": 1}))
    assert send(amount=2) == (422, {"code": "request-mismatch"})
    assert Effect.objects.count() == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("how", BROKEN[connection.vendor])
def test_the_rival_is_nowhere_safer(user: User, once: Any, how: str) -> None:
    """Where the rival fails for an error that the view has caught, so do we: no success without its
    writes.
    """

    def pay(request: HttpRequest) -> JsonResponse:
        row = Effect.objects.create(label="paid", idempotency_key="", attempt=0)
        BROKEN[connection.vendor][how][0](row)
        return JsonResponse({"id": row.pk}, status=201)

    with suppress(DatabaseError):  # or it has not noticed: then it is the one that is not safe
        sender(once(pay), user)(amount=1)
    Effect.objects.all().delete()
    assert sender(idempotent()(pay), user)(amount=1)[0] == 500
    assert Effect.objects.count() == 0
