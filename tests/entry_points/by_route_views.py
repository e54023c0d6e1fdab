"""Views of strangers: none of them knows of keys."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import include, path
from django.views import View
from rest_framework.authentication import TokenAuthentication
from rest_framework.permissions import IsAuthenticated
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import idempotent
from testproject.payments.models import Effect


def work(label: str) -> int:
    return Effect.objects.create(label=label, attempt=0).pk


def plain(request: HttpRequest, **_: Any) -> HttpResponse:
    return JsonResponse({"id": work("plain")}, status=201)


def other(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"id": work("other")}, status=201)


async def awaited(request: HttpRequest) -> HttpResponse:
    return JsonResponse(
        {"id": (await Effect.objects.acreate(label="awaited", attempt=0)).pk}, status=201
    )


class Based(View):
    def post(self, request: HttpRequest) -> HttpResponse:
        return JsonResponse({"id": work("based")}, status=201)


class Rest(APIView):
    authentication_classes = (TokenAuthentication,)
    permission_classes = (IsAuthenticated,)

    def post(self, request: Any) -> Response:
        return Response({"id": work("rest"), "user": request.user.pk}, status=201)


@idempotent(required=True)
def own(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"id": work("own")}, status=201)


inner = [
    path("plain/", plain, name="plain"),
    path("other/", other, name="other"),
    path("based/", Based.as_view(), name="based"),
    path("rest/", Rest.as_view(), name="rest"),
    path("awaited/", awaited, name="awaited"),
    path("own/", own, name="own"),
    path("<slug:shop>/plain/", plain, name="of-shop"),
]
urlpatterns = [path("pay/", include((inner, "pay")))]
