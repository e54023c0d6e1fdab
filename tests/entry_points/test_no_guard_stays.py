"""What is raised after the claim, and answered by somebody else, leaves no guard behind."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
from django.contrib.auth.models import User
from django.db import connection, connections
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import path
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency.decorators import idempotent
from django_idempotency.http.call import Call
from testproject.payments.models import Effect
from tests.stores.helpers import elsewhere

from .conftest import Connect, effects
from .test_unfinished import other as other  # noqa: PLC0414 - a fixture

pytestmark = [pytest.mark.django_db(transaction=True)]


@pytest.mark.urls("tests.entry_points.outcome_views")
def test_an_exception_handler_that_answers_everything(
    user: User, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call is closed, and the next one commits its own transaction."""

    def broken(*_: Any) -> None:
        raise RuntimeError

    def answers(*_: Any) -> Any:
        return lambda error, context: Response({}, status=500)

    with monkeypatch.context() as patch:
        patch.setattr(APIView, "get_exception_handler", answers)
        patch.setattr(Call, "_begin", broken)
        assert connect("/mixed/", user)({"how": "201"}, key="first").status_code == 500
    assert not connection.in_atomic_block
    assert connect("/mixed/", user)({"how": "201"}, key="second").status_code == 201
    assert effects() == elsewhere(Effect.objects.count) == 1


@idempotent()
def refusing(request: HttpRequest) -> HttpResponse:
    raise Http404


urlpatterns = [path("refusing/", refusing)]


@pytest.mark.urls(__name__)
def test_an_answered_exception_rolls_back_every_database(
    user: User, connect: Connect, other: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Django does under ATOMIC_REQUESTS for the exception itself."""
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", True)
    monkeypatch.setattr(other, "commit", Mock(side_effect=AssertionError))
    assert connect("/refusing/", user)().status_code == 404
