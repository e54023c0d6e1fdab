"""The same view behind each package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http.response import HttpResponseBase
from drf_idempotencykey.mixins import DrfIdempotencyKeyMixin
from idemkit import HttpConfig, RedisBackend
from idemkit.contrib.drf import idempotent_view
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView
from rest_framework_idempotency_key.decorators import simple_idempotency_key_method

from django_idempotency import Policy
from django_idempotency.rest_framework import IdempotentViewMixin

from .models import Charge
from .settings import LOCK, REDIS_URL

#: What the view does when it has written, and what it returns.
Ending = Callable[[Charge], HttpResponseBase]


def created(charge: Charge) -> Response:
    return Response({"id": charge.pk}, status=201)


class Stage:
    """What a case arranges in the view."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.ends: Ending = created
        #: May users use the view? And those who have not logged in?
        self.allowed = True
        self.open = False


stage = Stage()


class Allowed(BasePermission):
    def has_permission(self, request: Request, view: Any) -> bool:
        return stage.open or bool(request.user.is_authenticated and stage.allowed)


class Bare(APIView):
    """The view without a guard; a middleware may have one."""

    permission_classes = (Allowed,)

    def post(self, request: Request) -> HttpResponseBase:
        assert isinstance(request.data, dict)
        return stage.ends(Charge.objects.create(amount=request.data["amount"]))

    put = delete = post


class Ours(IdempotentViewMixin, Bare):
    """This package, by its mixin."""


class OursRequired(Ours):
    idempotency = Policy(required=True)


class ByMixin(DrfIdempotencyKeyMixin, Bare):
    """drf-idempotencykey."""


class ByMixinRequired(ByMixin):
    require_idempotency_key = True


class ByMethod(Bare):
    """djangorestframework-idempotency-key; its middleware belongs to it."""

    @simple_idempotency_key_method
    def post(self, request: Request) -> HttpResponseBase:
        return super().post(request)


PREFIX = "idempotency-peers"
REDIS = RedisBackend.from_url(REDIS_URL, namespace=PREFIX)


def idemkit(**options: Any) -> type:
    """Return the mixin of idemkit, for a project with many users."""
    made: type = idempotent_view(
        backend=REDIS,
        config=HttpConfig(
            scope=lambda request: str(request.user.pk),
            lease_ttl_seconds=LOCK,
            **options,
        ),
    )
    return made


class Idemkit(idemkit(), Bare):  # type: ignore[misc]
    """idemkit."""


class IdemkitRequired(idemkit(require_key_for_mutations=True), Bare):  # type: ignore[misc]
    """The same, where a key is mandatory."""
