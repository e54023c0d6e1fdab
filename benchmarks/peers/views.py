"""The same DRF view behind each package."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.db import connection
from drf_idempotencykey.mixins import DrfIdempotencyKeyMixin
from idemkit import HttpConfig, PostgresBackend, RedisBackend
from idemkit.contrib.drf import idempotent_view
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer
from rest_framework_idempotency_key.decorators import simple_idempotency_key_method

from benchmarks.views import BareCreate
from django_idempotency import Policy
from django_idempotency.rest_framework import IdempotentViewMixin

from .settings import LOCK, REDIS_URL


class Afterwards:
    """What happens behind the view's write: nothing, or the accident of a test."""

    def __init__(self) -> None:
        self.happens: Callable[[], object] = bool


afterwards = Afterwards()


class Work(BareCreate):
    permission_classes = (IsAuthenticated,)

    def perform_create(self, serializer: BaseSerializer[Any]) -> None:
        super().perform_create(serializer)
        afterwards.happens()


class Atomic(IdempotentViewMixin, Work):
    """This package."""


class Lease(IdempotentViewMixin, Work):
    """This package, on Redis."""

    idempotency = Policy(store="redis", guarantee="lease", lease=timedelta(seconds=LOCK))


class ByMethod(Work):
    """djangorestframework-idempotency-key; its middleware belongs to it."""

    @simple_idempotency_key_method
    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().create(request, *args, **kwargs)


class ByMixin(DrfIdempotencyKeyMixin, Work):
    """drf-idempotencykey."""


def address() -> str:
    place = connection.settings_dict
    return f"postgres://{place['USER']}:{place['PASSWORD']}@{place['HOST']}:{place['PORT']}/{place['NAME']}"


def owner(request: Request) -> str:
    return str(request.user.pk)


IDEMKIT = HttpConfig(scope=owner, lease_ttl_seconds=LOCK)
DATABASE = PostgresBackend.from_url(address(), min_size=1)
REDIS = RedisBackend.from_url(REDIS_URL, namespace="bench-peers")


class IdemkitInDatabase(idempotent_view(backend=DATABASE, config=IDEMKIT), Work):  # type: ignore[misc]
    """idemkit, with its table beside the view's."""


class IdemkitInRedis(idempotent_view(backend=REDIS, config=IDEMKIT), Work):  # type: ignore[misc]
    """idemkit, on Redis."""
