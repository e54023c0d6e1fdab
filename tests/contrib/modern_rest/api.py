"""Controllers of django-modern-rest, as a project writes them; sync and async, with msgspec and
with pydantic.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec
import pydantic
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpResponse
from django.urls import include, path
from dmr import APIError, Body, Controller, HeaderSpec, ResponseSpec, modify, validate
from dmr.errors import ErrorModel
from dmr.openapi import build_schema
from dmr.openapi.views import OpenAPIJsonView
from dmr.plugins.msgspec import MsgspecSerializer
from dmr.plugins.pydantic import PydanticSerializer
from dmr.problem_details import ProblemDetailsError
from dmr.routing import Router
from dmr.security import AsyncAuth, SyncAuth
from dmr.throttling import Rate, SyncThrottle
from dmr.throttling.backends import SyncDjangoCache

from django_idempotency import idempotency_exempt, idempotent
from testproject.payments.models import Effect


class Token(SyncAuth):
    """Finds the user of a token, and sets it on the request, as the package's own for JWT does."""

    www_authenticate_challenge = None

    def __call__(self, endpoint: Any, controller: Any) -> Any:
        found = User.objects.filter(
            username=controller.request.headers.get("Authorization", "")
        ).first()
        if found is None:
            return None
        controller.request.user = found
        return self

    def security_schemes(self, *_: Any) -> dict[str, Any]:
        return {}

    def security_requirements(self, *_: Any) -> list[Any]:
        return []


class AsyncToken(AsyncAuth):
    www_authenticate_challenge = None

    async def __call__(self, endpoint: Any, controller: Any) -> Any:
        return await sync_to_async(Token.__call__)(self, endpoint, controller)  # type: ignore[arg-type]

    security_schemes, security_requirements = Token.security_schemes, Token.security_requirements  # type: ignore[assignment]


class ChargeIn(msgspec.Struct):
    amount: int
    how: str = ""


class ChargeOut(msgspec.Struct):
    id: int
    amount: int


class OrderIn(pydantic.BaseModel):
    amount: int


class OrderOut(pydantic.BaseModel):
    id: int


class SoldOut(Exception):
    """An exception of the project's own."""


class PowerCut(BaseException):
    """No handler of exceptions sees it."""


def write(label: str = "charge") -> int:
    return int(Effect.objects.create(label=label, attempt=0).pk)


class Charges(Controller[MsgspecSerializer]):
    auth = (Token(),)
    responses = (ResponseSpec(ErrorModel, status_code=HTTPStatus.PAYMENT_REQUIRED),)

    @modify(status_code=HTTPStatus.CREATED)
    @idempotent(required=True)
    def post(self, parsed_body: Body[ChargeIn]) -> ChargeOut:
        assert self.request.idempotency  # type: ignore[attr-defined]
        made = write()
        match parsed_body.how:
            case "refuse":
                raise APIError(
                    self.format_error("declined"), status_code=HTTPStatus.PAYMENT_REQUIRED
                )
            case "raise":
                raise SoldOut
            case "bad":  # the response does not fit its schema, once the work is done
                return {"id": "none"}  # type: ignore[return-value]
            case "die":
                raise PowerCut
        return ChargeOut(made, parsed_body.amount)

    @idempotency_exempt
    def put(self) -> dict[str, int]:
        return {"id": write("put")}

    def get(self) -> list[str]:
        return []


class More(Charges):
    """A subclass with a method of its own."""

    def patch(self) -> dict[str, int]:
        return {"id": write("patch")}


class AsyncCharges(Controller[PydanticSerializer]):
    auth = (AsyncToken(),)

    @idempotent(guarantee="lease")
    @modify(status_code=HTTPStatus.CREATED)
    async def post(self, parsed_body: Body[OrderIn]) -> OrderOut:
        if parsed_body.amount == 402:
            raise SoldOut
        return OrderOut(id=(await Effect.objects.acreate(label="async", attempt=0)).pk)


class Documents(Controller[PydanticSerializer]):
    """Its errors are problem documents, and its response is one of Django's."""

    auth = (Token(),)

    def format_error(self, error: Any, **given: Any) -> Any:
        return ProblemDetailsError.format_error(error, **given)

    @validate(
        ResponseSpec(
            dict[str, int],
            status_code=HTTPStatus.CREATED,
            headers={"X-Charge": HeaderSpec(description="Which.")},
        ),
        validate_responses=False,
    )
    @idempotent
    def post(self) -> HttpResponse:
        made = write()
        return self.to_response(
            {"id": made}, status_code=HTTPStatus.CREATED, headers={"X-Charge": str(made)}
        )


class Throttled(Controller[MsgspecSerializer]):
    auth = (Token(),)
    throttling = (SyncThrottle(2, Rate.hour, backend=SyncDjangoCache(allow_unsafe_cache=True)),)

    @idempotent
    def post(self) -> dict[str, int]:
        return {"id": write()}


class Spending(Controller[MsgspecSerializer]):
    """It says what of its transactions it sees."""

    auth = (Token(),)

    @idempotent
    def post(self) -> dict[str, bool]:
        return {"atomic": transaction.get_connection().in_atomic_block, "id": bool(write())}


class Bare(Controller[MsgspecSerializer]):
    def post(self) -> dict[str, int]:
        return {"id": write()}


router = Router(
    "api/",
    [
        path("charges/", Charges.as_view()),
        path("more/", More.as_view()),
        path("async/", AsyncCharges.as_view()),
        path("documents/", Documents.as_view()),
        path("throttled/", Throttled.as_view()),
        path("spending/", Spending.as_view()),
        path("bare/", Bare.as_view()),
    ],
)
urlpatterns = [
    path("api/", include((router.urls, "modern"))),
    path("openapi.json", OpenAPIJsonView.as_view(build_schema(router))),
]
