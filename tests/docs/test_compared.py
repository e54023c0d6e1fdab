"""The hand-written rival on the page does what the page says of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.http import HttpRequest, JsonResponse
from django.test import RequestFactory
from django.test.utils import isolate_apps

from testproject.payments.models import Effect

from .pages import DOCS, blocks


def pay(request: HttpRequest) -> JsonResponse:
    Effect.objects.create(label="paid", idempotency_key="", attempt=0)
    if b"fail" in request.body:
        raise ZeroDivisionError
    return JsonResponse({"id": Effect.objects.count()}, status=201)


@pytest.mark.django_db(transaction=True)
@isolate_apps("testproject.payments")
def test_twenty_six_lines(user: User) -> None:
    """A retry gets the response, another body a 422, and a failure leaves nothing, not even the key."""
    (code,) = [each.code for each in blocks(DOCS / "explanation/compared.md") if "def once" in each.code]
    assert len([line for line in code.splitlines() if line.strip()]) == 26
    names: dict[str, Any] = {"__name__": "testproject.payments.rival"}
    exec(code, names)
    with connection.schema_editor() as editor:
        editor.create_model(names["Request"])
    try:
        guarded = names["once"](pay)

        def send(**body: Any) -> tuple[int, Any]:
            request = RequestFactory().post("/pay/", body, "application/json", headers={"Idempotency-Key": "k"})
            request.user = user
            response = guarded(request)
            return response.status_code, json.loads(response.content)

        with pytest.raises(ZeroDivisionError):
            send(fail=True)
        assert (send(amount=1), send(amount=1)) == ((201, {"id": 1}), (201, {"id": 1}))
        assert send(amount=2) == (422, {"code": "request-mismatch"})
        assert Effect.objects.count() == 1
    finally:
        with connection.schema_editor() as editor:
            editor.delete_model(names["Request"])
