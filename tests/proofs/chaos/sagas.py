"""An operation of three steps: one writes here, one calls elsewhere, one calls elsewhere and can be
undone.

The key of a request says what happens to it, so both of its clients, every attempt and the audit
agree.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import Policy
from django_idempotency.contrib.steps import UndoOn
from django_idempotency.rest_framework import IdempotentViewMixin
from testproject.payments.models import Effect

from ...support.provider import Provider
from .workloads import FOLDER


def provider() -> Provider:
    return Provider(Path(os.environ[FOLDER]))


class SoldOut(APIException):
    """The last seat is gone: the operation gives up."""

    status_code = 410


def is_sold_out(key: str) -> bool:
    """Does the operation give up?"""
    return key[0] in "0123"


def is_abandoned(key: str) -> bool:
    """Do its clients die after their first request?"""
    return key[1] in "0123"


def loses_its_answer(key: str) -> bool:
    """Is the answer to its first reservation lost on the way back?"""
    return key[2] in "01234567"


def make_order(key: str) -> str:
    Effect.objects.create(label="order", idempotency_key=key)
    return key


def cancel_order(key: str) -> None:
    Effect.objects.create(label="undo order", idempotency_key=key)


def pay(key: str, *, idempotency_key: str) -> list[str]:
    return provider().call("pay", key, idempotency_key)


def reserve(key: str, *, idempotency_key: str) -> list[str]:
    books = provider()
    receipt = books.call("reserve", key, idempotency_key)
    if loses_its_answer(key) and books.notes(key)["reserve"] == 1:
        raise TimeoutError
    return receipt


def release(reserved: list[str], *, idempotency_key: str) -> None:
    provider().call("undo reserve", reserved[0], idempotency_key)


def find(asked: Any) -> Any:
    """Tell the truth."""
    receipt = provider().found("reserve", asked.key)
    return asked.run() if receipt is None else asked.found(receipt)


class Bookings(IdempotentViewMixin, APIView):
    idempotency = Policy(guarantee="lease", lease=3, required=True, extensions=[UndoOn(SoldOut)])

    def post(self, request: Request) -> Response:
        run: Any = request.idempotency  # type: ignore[attr-defined]
        run.step("order", make_order, run.key, undo=cancel_order)
        run.step("pay", pay, run.key)
        run.step("reserve", reserve, run.key, undo=release, ask=find)
        if is_sold_out(run.key):
            raise SoldOut
        return Response(status=201)
