"""The page about floods: its throttle for one client's keys is run."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.urls import path
from rest_framework.authentication import SessionAuthentication
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.test import APIClient
from rest_framework.views import APIView

from django_idempotency.models import IdempotencyRecord
from django_idempotency.rest_framework import IdempotentViewMixin

from .pages import DOCS, blocks

NAMES: dict[str, Any] = {}
(EXAMPLE,) = [
    block
    for block in blocks(DOCS / "how-to/floods-and-duplicates.md")
    if "KeyedThrottle" in block.code
]
exec(EXAMPLE.code, NAMES)


Few = type("Few", (NAMES["KeyedThrottle"],), {"rate": "3/hour"})


class View(IdempotentViewMixin, APIView):
    authentication_classes = (SessionAuthentication,)
    throttle_classes = (Few,)

    def post(self, request: Request) -> Response:
        return Response({"id": str(uuid4())}, status=201)


urlpatterns = [path("view/", View.as_view())]


def keyed(number: int) -> dict[str, str]:
    return {"Idempotency-Key": f"key-{number}"}


@pytest.mark.django_db(transaction=True)
@pytest.mark.urls(__name__)
def test_one_client_with_many_keys(user: User, other_user: User) -> None:
    """The client makes as many records as the rate allows, and gets its replays; without a key
    nothing is counted.
    """
    cache.clear()
    client, other = APIClient(), APIClient()
    client.force_authenticate(user)
    other.force_authenticate(other_user)
    first = client.post("/view/", headers=keyed(0))
    assert [client.post("/view/", headers=keyed(number)).status_code for number in range(1, 5)] == [
        201
    ] * 2 + [429] * 2
    assert IdempotencyRecord.objects.count() == 3
    for _ in range(5):
        replay = client.post("/view/", headers=keyed(0))
        assert (replay.status_code, replay.content, replay["Idempotent-Replayed"]) == (
            201,
            first.content,
            "true",
        )
    refused = client.post("/view/", headers=keyed(5))
    assert (refused.status_code, refused["Idempotency-Status"]) == (429, "refused")
    assert int(refused["Retry-After"]) > 0
    assert client.post("/view/").status_code == 201
    assert other.post("/view/", headers=keyed(0)).status_code == 201
    assert IdempotencyRecord.objects.count() == 4
    cache.clear()
