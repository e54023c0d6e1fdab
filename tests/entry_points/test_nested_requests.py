"""A guarded view that sends requests of its own: each keeps its own transaction of
ATOMIC_REQUESTS.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connections
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import Client
from django.urls import path

from testproject.payments.models import Effect

from .conftest import Connect, effects

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]


def single(request: HttpRequest) -> HttpResponse:
    Effect.objects.create(label="written", idempotency_key="", attempt=0)
    if json.loads(request.body).get("fails"):
        raise LookupError
    return JsonResponse({}, status=201)


def batch(request: HttpRequest) -> HttpResponse:
    """Send each part through the project's own URLs."""
    client = Client(raise_request_exception=False)
    assert isinstance(request.user, User)
    client.force_login(request.user)
    parts = json.loads(request.body)
    answers = [
        client.post("/single/", json.dumps(part), content_type="application/json") for part in parts
    ]
    return JsonResponse([answer.status_code for answer in answers], safe=False, status=207)


urlpatterns = [path("single/", single), path("batch/", batch)]


def test_a_part_that_fails_is_rolled_back(
    user: User, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed part rolls back, with a key and without, and takes nothing of the others along."""
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", True)
    send, parts = connect("/batch/", user), [{}, {"fails": True}]
    assert send(parts, key=None).json() == [201, 500]
    assert effects() == 1
    assert send({}, key="k" * 30, url="/single/").status_code == 201
    assert effects() == 2
    assert send(parts).json() == [201, 500]
    assert effects() == 3


def test_an_unguarded_request_is_rolled_back(
    user: User, connect: Connect, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """An unguarded request rolls back, even in a thread that has guarded one before: no guard state
    is left there.
    """
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", True)
    assert connect("/single/", user)({}).status_code == 201
    settings.MIDDLEWARE = settings.MIDDLEWARE[:-1]
    assert connect("/single/", user)({"fails": True}).status_code == 500
    assert effects() == 1
