"""A `lease` inside a transaction of the project is refused, wherever its record is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import Client, override_settings
from django.urls import path
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import Policy, idempotent
from django_idempotency.errors import LeaseInTransaction
from django_idempotency.models import IdempotencyRecord
from django_idempotency.rest_framework import IdempotentViewMixin
from django_idempotency.runtime.registry import stores
from tests.functions.helpers import MEMORY, ORM

from .conftest import CHARGE, KEY, effects
from .outcome_views import write

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]


def pay(request: HttpRequest) -> HttpResponse:
    write()
    return JsonResponse({}, status=201)


@idempotent(guarantee="lease", store="memory")
async def apay(request: HttpRequest) -> HttpResponse:
    raise AssertionError("it never runs")


class Paying(IdempotentViewMixin, APIView):
    idempotency = Policy(guarantee="lease", store="memory")

    def post(self, request: Request) -> Response:
        write()
        return Response({}, status=201)


def rolled_back(
    view: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """Call a view in a transaction that ends without a COMMIT."""

    def outer(request: HttpRequest) -> HttpResponse:
        with transaction.atomic():
            response = view(request)
            transaction.set_rollback(True)
        return response

    return outer


VIEWS = {
    "sync": idempotent(guarantee="lease", store="memory")(pay),
    "async": async_to_sync(apay),
    "mixin": Paying.as_view(),
    "in the same database": idempotent(guarantee="lease")(pay),
}

urlpatterns = [path(f"{name}/", rolled_back(view)) for name, view in VIEWS.items()]


@pytest.fixture
def send(user: User, settings: Any) -> Iterator[Callable[[str], Any]]:
    settings.MIDDLEWARE = settings.MIDDLEWARE[:-1]  # each view has its own entry point
    client = Client()
    client.force_login(user)

    def post(url: str) -> Any:
        return client.post(
            f"/{url}/", CHARGE, content_type="application/json", headers={"Idempotency-Key": KEY}
        )

    with override_settings(IDEMPOTENCY={"STORES": {"default": ORM, "memory": MEMORY}}):
        yield post


@pytest.mark.parametrize("url", VIEWS)
def test_a_lease_is_refused(send: Callable[[str], Any], url: str) -> None:
    """Before anything runs: a retry would get the response of work that was rolled back, or a
    crash would take the record of work that has acted.
    """
    with pytest.raises(LeaseInTransaction):
        send(url)
    assert (effects(), vars(stores["memory"])["_records"]) == (0, {})
    assert IdempotencyRecord.objects.count() == 0
