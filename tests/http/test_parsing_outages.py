"""A form whose parsing fails for a reason outside the form: nothing has run, and the retry is the
same request.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.files.uploadhandler import MemoryFileUploadHandler
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import RequestFactory
from pytest_django import Settings

from django_idempotency import idempotent
from testproject.payments.models import Effect

pytestmark = pytest.mark.django_db(transaction=True)


class Storage(MemoryFileUploadHandler):
    """Fails at the first chunk."""

    away = False

    def receive_data_chunk(self, raw_data: bytes, start: int) -> bytes | None:
        if Storage.away:
            Storage.away = False
            raise OSError("No space left on device")
        return super().receive_data_chunk(raw_data, start)


def pay(request: HttpRequest) -> HttpResponse:
    Effect.objects.create(label=request.POST["order"])
    return JsonResponse({"order": request.POST["order"]}, status=201)


@pytest.mark.parametrize(
    ("policy", "headers"),
    [({"key": "body.order"}, {}), ({}, {"Idempotency-Key": "key-1"})],
    ids=str,
)
def test_a_storage_that_is_away(
    policy: dict[str, Any],
    headers: dict[str, str],
    user: User,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client gets the storage's error, as without a guard; the retry is guarded, and the next
    one is a replay.
    """
    settings.FILE_UPLOAD_HANDLERS = [f"{__name__}.Storage"]
    monkeypatch.setattr(Storage, "away", True)
    view = idempotent(**policy)(pay)

    def send() -> HttpResponse:
        fields = {"order": "7", "slip": SimpleUploadedFile("slip", b"paid")}
        request = RequestFactory().post("/pay/", fields, headers=headers)
        request.user = user
        return view(request)

    with pytest.raises(OSError, match="No space"):
        send()
    assert not Effect.objects.exists()
    assert [send().get("Idempotent-Replayed") for _ in range(2)] == [None, "true"]
    assert Effect.objects.count() == 1
