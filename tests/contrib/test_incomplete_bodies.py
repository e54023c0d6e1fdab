"""Views of other packages, and forms: a body that is shorter than its Content-Length runs nothing,
whoever parses it first.
"""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import include, path
from django.views.decorators.csrf import csrf_exempt

from django_idempotency import Policy, idempotent
from django_idempotency.contrib import forms
from django_idempotency.models import IdempotencyRecord
from testproject.payments.models import Effect

pytest.importorskip("adrf")
pytest.importorskip("dmr")
pytest.importorskip("graphene_django")
pytest.importorskip("mcp")
pytest.importorskip("ninja")
pytest.importorskip("strawberry")

import graphene
import strawberry
from adrf.views import APIView as AsyncAPIView
from asgiref.sync import sync_to_async
from graphene_django.views import GraphQLView as GrapheneView
from ninja import File, Form, NinjaAPI, UploadedFile
from rest_framework.response import Response
from strawberry.django.views import AsyncGraphQLView
from strawberry.django.views import GraphQLView as StrawberryView

from django_idempotency.contrib.tools import idempotent_tool_calls
from django_idempotency.rest_framework import IdempotentViewMixin

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
]

KEY = "8e03978e-40d5-43e8-bc93-6894a57f9324"


def write(_: Any = None) -> int:
    return int(Effect.objects.create(label="charge", attempt=0).pk)


# ---------------------------------------------------------------------------------------- the views

api = NinjaAPI(urls_namespace="incomplete")


@api.post("json")
@idempotent()
def by_json(request: HttpRequest, amount: int = 0) -> dict[str, int]:
    return {"id": write()}


@api.post("form")
@idempotent(fingerprint="headers")
def by_form(request: HttpRequest, amount: Form[int]) -> dict[str, int]:
    return {"id": write()}


@api.post("upload")
@idempotent()
def by_file(request: HttpRequest, slip: File[UploadedFile]) -> dict[str, int]:
    return {"id": write()}


class Mutation(graphene.ObjectType):
    charge = graphene.Int()

    def resolve_charge(self, info: Any) -> int:
        return write()


class Query(graphene.ObjectType):
    one = graphene.Int()


@strawberry.type
class Reads:
    one: int = 1


@strawberry.type
class Changes:
    @strawberry.mutation
    def charge(self) -> int:
        return write()


@strawberry.type
class AsyncChanges:
    @strawberry.mutation
    async def charge(self) -> int:
        return await sync_to_async(write)()


TERMS: dict[str, Any] = {"authorize_replay": lambda request, outcome: True}
FIELDS = strawberry.Schema(query=Reads, mutation=Changes)
ASYNC_FIELDS = strawberry.Schema(query=Reads, mutation=AsyncChanges)
schema = graphene.Schema(query=Query, mutation=Mutation)


class Adrf(IdempotentViewMixin, AsyncAPIView):
    permission_classes = ()
    idempotency = Policy(guarantee="lease", fingerprint="headers")

    async def post(self, request: Any) -> Response:
        return Response({"id": await sync_to_async(write)()}, status=201)


@csrf_exempt
@idempotent(profile=forms.Form(), required=True)
def form(request: HttpRequest) -> HttpResponse:
    write()
    return HttpResponse("Done")


@csrf_exempt
@idempotent_tool_calls(required=True)
def tools(request: HttpRequest) -> HttpResponse:
    write()
    return HttpResponse(
        json.dumps({"jsonrpc": "2.0", "id": 1, "result": {}}), content_type="application/json"
    )


urlpatterns = [
    path("ninja/", api.urls),
    path("graphene", csrf_exempt(idempotent(**TERMS)(GrapheneView).as_view(schema=schema))),
    path("strawberry", csrf_exempt(idempotent(**TERMS)(StrawberryView).as_view(schema=FIELDS))),
    path(
        "async",
        csrf_exempt(
            idempotent(guarantee="lease", **TERMS)(AsyncGraphQLView).as_view(schema=ASYNC_FIELDS)
        ),
    ),
    path("adrf", Adrf.as_view()),
    path("form", form),
    path("tools", tools),
    path("modern/", include("tests.contrib.modern_rest.api")),
]

FORM, JSON = "application/x-www-form-urlencoded", "application/json"
MULTIPART = "multipart/form-data; boundary=b"
FILE = (
    b'--b\r\nContent-Disposition: form-data; name="slip"; filename="f"\r\n\r\n'
    + b"p" * 400
    + b"\r\n--b--\r\n"
)
QUERY = b"query=mutation+{+charge+}" + b"+" * 9
CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "charge", "_meta": {"idempotency-key": KEY}},
}
#: What a body lacks at its end leaves it whole to a parser.
REQUESTS = {
    "ninja/json": (b'{"amount": 1}' + b" " * 9, JSON),
    "ninja/form": (b"amount=10000", FORM),
    "ninja/upload": (FILE, MULTIPART),
    "graphene": (json.dumps({"query": "mutation { charge }"}).encode() + b" " * 9, JSON),
    "graphene by form": (QUERY, FORM),
    "strawberry": (json.dumps({"query": "mutation { charge }"}).encode() + b" " * 9, JSON),
    "async": (json.dumps({"query": "mutation { charge }"}).encode() + b" " * 9, JSON),
    "adrf": (b'{"amount": 1}' + b" " * 9, JSON),
    "form": (b"idempotency_key=%b&amount=10000" % KEY.encode(), FORM),
    "tools": (json.dumps(CALL).encode() + b" " * 9, JSON),
    "modern/api/charges/": (b'{"amount": 1}' + b" " * 9, JSON),
    "modern/api/async/": (b'{"amount": 1}' + b" " * 9, JSON),
}


def sent(user: User, address: str, body: bytes, content_type: str, *, missing: int = 0) -> Any:
    client = Client(raise_request_exception=False)
    client.force_login(user)
    about: dict[str, Any] = {"CONTENT_TYPE": content_type, "CONTENT_LENGTH": str(len(body))}
    about |= {
        "HTTP_AUTHORIZATION": user.username,
        "wsgi.input": BytesIO(body[: len(body) - missing]),
    }
    return client.generic(
        "POST", f"/{address.partition(' ')[0]}", **about, headers={"Idempotency-Key": KEY}
    )


@pytest.mark.parametrize("address", REQUESTS)
def test_half_a_request(user: User, address: str) -> None:
    """It is refused in the format of its package, nothing runs, and the complete retry is carried
    out once.
    """
    body, content_type = REQUESTS[address]
    refused = sent(user, address, body, content_type, missing=3)
    assert refused.status_code == 400
    assert "body-incomplete" in refused.content.decode()
    assert (Effect.objects.count(), IdempotencyRecord.objects.count()) == (0, 0)
    statuses = [sent(user, address, body, content_type).status_code for _ in range(2)]
    assert statuses[0] in (200, 201)
    assert statuses[1] == statuses[0]
    assert Effect.objects.count() == 1


@pytest.mark.parametrize("address", ["graphene", "strawberry"])
def test_half_a_mutation_that_reads_as_a_query(user: User, address: str) -> None:
    """Only what provably changes nothing runs unguarded: what is left of a request proves
    nothing.
    """
    body = b'{"query": "{ one }"}' + b" " * 9
    refused = sent(user, address, body, JSON, missing=3)
    assert (refused.status_code, refused.json()["code"]) == (400, "body-incomplete")
    assert sent(user, address, body, JSON).status_code == 200
