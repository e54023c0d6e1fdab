"""One view behind each sync entry point. It writes a row, and ends as it is asked."""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import graphene
from django.contrib.auth.decorators import user_passes_test
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.template.response import SimpleTemplateResponse
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View
from dmr import Controller, ResponseSpec, validate
from dmr.plugins.msgspec import MsgspecSerializer
from graphene_django.views import GraphQLView
from ninja import NinjaAPI
from rest_framework.decorators import api_view, permission_classes
from rest_framework.permissions import IsAdminUser
from rest_framework.request import Request
from rest_framework.views import APIView

from django_idempotency import idempotent
from django_idempotency.rest_framework import IdempotentViewMixin
from testproject.payments.models import Charge, Effect

#: The attempt and the derived key of each keyed run.
RAN: list[tuple[int, str]] = []
ENTERED = threading.Event()
LEAVE = threading.Event()


class PowerCut(BaseException):
    """Ends the process, as far as the view can know."""


class Broken(SimpleTemplateResponse):
    def render(self) -> Any:
        raise LookupError("a template")


def act(request: Any, how: str) -> int:
    """Write, and return a status or raise."""
    Effect.objects.create(label=how, idempotency_key="", attempt=0)
    if request.idempotency:
        RAN.append((request.idempotency.attempt, request.idempotency.derive("bank")))
    is_first = len(RAN) == 1
    if how == "raise":
        raise LookupError
    if how == "404":
        raise Http404
    if how == "dies" and is_first:
        raise PowerCut
    if how == "deferred" and is_first:
        Charge.objects.create(user_id=404, amount=1, currency="inr")  # refused at COMMIT
    if how == "slow" and is_first:
        ENTERED.set()
        assert LEAVE.wait(20)
    return int(how) if how.isdigit() else 201


def pay(request: Any) -> HttpResponse:
    how = json.loads(request.body)["how"]
    status = act(request, how)
    if how == "broken":
        return Broken("no template")
    return JsonResponse({"how": how}, status=status)


def is_staff(user: Any) -> bool:
    return bool(user.is_staff)


def is_allowed(request: Any, *_: Any) -> bool:
    return is_staff(request.user)


class Paying(View):
    def post(self, request: HttpRequest) -> HttpResponse:
        return pay(request)


class PayingApi(APIView):
    permission_classes = (IsAdminUser,)

    def post(self, request: Request) -> HttpResponse:
        return pay(request._request)


class MixedApi(IdempotentViewMixin, PayingApi):
    pass


def pay_api() -> Callable[[Any], Any]:
    """Make a function of its own for each decorator that marks it."""

    @permission_classes([IsAdminUser])
    def paying(request: Request) -> HttpResponse:
        return pay(request._request)

    return paying


staff = user_passes_test(is_staff, login_url="/login/")
ninja = NinjaAPI(urls_namespace="one bracket")


@ninja.post("/pay", auth=lambda request: request.user if is_staff(request.user) else None)
@idempotent()
def operation(request: HttpRequest) -> HttpResponse:
    return pay(request)


class ModernRest(Controller[MsgspecSerializer]):
    @validate(
        ResponseSpec(dict[str, str], status_code=HTTPStatus.CREATED), validate_responses=False
    )
    @idempotent(authorize_replay=is_allowed)
    def post(self) -> HttpResponse:
        return pay(self.request)


class Pay(graphene.Mutation):
    class Arguments:
        how = graphene.String()

    status = graphene.Int()

    def mutate(self, info: Any, how: str) -> Pay:
        return Pay(status=act(info.context, how))


class Mutations(graphene.ObjectType):
    pay = Pay.Field()


class Queries(graphene.ObjectType):
    nothing = graphene.Int()


SCHEMA = graphene.Schema(query=Queries, mutation=Mutations)


@idempotent(authorize_replay=is_allowed)
class Graphene(GraphQLView):
    pass


#: The entry points of Django's own views, of REST framework's, and of others.
PLAIN: dict[str, Any] = {
    "decorator": staff(idempotent()(pay)),
    "class": method_decorator(staff, name="dispatch")(idempotent()(Paying)).as_view(),
    "middleware": staff(pay),
}
REST: dict[str, Any] = {
    "mixin": MixedApi.as_view(),
    "lent mixin": PayingApi.as_view(),
    "above": idempotent()(api_view(["POST"])(pay_api())),
    "below": api_view(["POST"])(idempotent()(pay_api())),
}
OTHERS: dict[str, Any] = {
    "ninja": next(each.callback for each in ninja.urls[0] if str(each.pattern) == "pay"),
    "modern-rest": ModernRest.as_view(),
    "graphene": Graphene.as_view(schema=SCHEMA),
}
VIEWS = {**PLAIN, **REST, **OTHERS}


def surrounded(view: Callable[..., Any]) -> Callable[..., Any]:
    """Call a view in a transaction of the project's."""

    @functools.wraps(view)
    def outer(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        with transaction.atomic():
            return view(request, *args, **kwargs)

    return outer


urlpatterns = [path(f"{name}/", view) for name, view in VIEWS.items()]
urlpatterns += [path(f"surrounded/{name}/", surrounded(view)) for name, view in VIEWS.items()]
