"""Views for every kind of response, upload and access rule; urls.py puts them behind the entry
points.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any

from django.conf import settings
from django.contrib.auth import mixins
from django.contrib.auth.decorators import login_required
from django.http import (
    FileResponse,
    HttpRequest,
    HttpResponse,
    HttpResponseRedirect,
    JsonResponse,
    StreamingHttpResponse,
)
from django.http.response import HttpResponseBase
from django.shortcuts import resolve_url
from django.template import engines
from django.template.response import SimpleTemplateResponse
from django.utils.decorators import method_decorator
from django.views import View
from rest_framework import permissions
from rest_framework.decorators import parser_classes, permission_classes
from rest_framework.parsers import (
    BaseParser,
    FileUploadParser,
    FormParser,
    JSONParser,
    MultiPartParser,
)
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView

from testproject.payments.models import Effect

SMALL, LARGE = 1000, 100_000  # below a MAX_BODY of 64 KiB, and above it


def work() -> str:
    """Leave an effect, and return content that no second run would return."""
    return f"{Effect.objects.create(label='work').pk:06}"


def chunks(count: int) -> Iterator[bytes]:
    yield work().encode()
    for _ in range(count):
        yield b"x" * 1000


def headed(response: HttpResponse) -> HttpResponse:
    for name, value in {
        "ETag": '"1"',
        "X-Note": "café",
        "X-Wide": "ключ",
        "Server-Timing": "db;dur=1",
    }.items():
        response[name] = value
    response.set_cookie("visited", "1")
    return response


def template() -> SimpleTemplateResponse:
    response = SimpleTemplateResponse(
        engines["django"].from_string("<p>{{ pk }}</p>"), {"pk": work()}, status=201
    )
    response.add_post_render_callback(
        lambda rendered: rendered.headers.setdefault("X-Rendered", "yes")
    )
    return response


#: Responses, by name. Each one runs the work.
ANSWERS: dict[str, Callable[[], HttpResponseBase]] = {
    # kept
    "binary": lambda: HttpResponse(
        bytes(range(256)) + work().encode(), content_type="application/octet-stream"
    ),
    "empty": lambda: HttpResponse(b"", headers={"X-Id": work()}),
    "gzipped": lambda: HttpResponse(
        gzip.compress(work().encode()), headers={"Content-Encoding": "gzip"}
    ),
    "gzip-negotiated": lambda: HttpResponse(
        gzip.compress(work().encode()),
        headers={
            "Content-Encoding": "gzip",
            "Vary": "Accept-Encoding",
            "Access-Control-Allow-Origin": "https://one.example",
        },
    ),
    "no-content": lambda: HttpResponse(status=204, headers={"X-Id": work()}),
    "moved": lambda: HttpResponse(status=301, headers={"Location": f"/charges/{work()}/"}),
    "found": lambda: HttpResponseRedirect(f"/charges/{work()}/"),
    "see-other": lambda: HttpResponse(status=303, headers={"Location": f"/charges/{work()}/"}),
    "not-found": lambda: HttpResponse(f"no {work()}", status=404),
    "unprocessable": lambda: HttpResponse(f"not {work()}", status=422),
    "template": template,
    "small-file": lambda: FileResponse(
        BytesIO(work().encode() * SMALL), filename="receipt.pdf", as_attachment=True
    ),
    "headers": lambda: headed(HttpResponse(work(), status=201)),
    # done, but without a body
    "stream": lambda: StreamingHttpResponse(
        chunks(1), status=201, headers={"Location": "/charges/1/"}
    ),
    "large-stream": lambda: StreamingHttpResponse(
        chunks(100), status=201, headers={"Location": "/charges/1/"}
    ),
    "large": lambda: HttpResponse(
        work().zfill(LARGE), status=201, headers={"Location": "/charges/1/"}
    ),
    "large-file": lambda: FileResponse(
        BytesIO(work().zfill(LARGE).encode()), headers={"Location": "/charges/1/"}
    ),
    "no-store": lambda: HttpResponse(
        work(), headers={"Cache-Control": "no-store", "Location": "/charges/1/"}
    ),
    # done, and leads to a login page, as after a registration
    "login": lambda: HttpResponseRedirect(
        f"{resolve_url(settings.LOGIN_URL)}?next=/answers/login/&{work()}"
    ),
    "text": lambda: HttpResponse(f"{work()} " + "text " * 500),
}


def answers(request: HttpRequest, kind: str) -> HttpResponseBase:
    return ANSWERS[kind]()


class AnswersView(APIView):
    permission_classes = ()

    def post(self, request: Request, kind: str) -> Any:
        return (
            ANSWERS[kind]()
            if kind in ANSWERS
            else Response({"id": work()}, status=201, headers={"X-Id": "1"})
        )


# ------------------------------------------------------------------------------------------ uploads


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read(upload: Any) -> str:
    with upload:  # DRF itself closes what its FileUploadParser opened only on garbage collection
        return digest(upload.read())


def seen(fields: Any, files: Any) -> dict[str, Any]:
    texts = {name: str(value).encode("utf-8", "replace").decode() for name, value in fields.items()}
    return {"fields": texts, "files": {name: read(upload) for name, upload in files.items()}}


def streamed(request: HttpRequest) -> str:
    value = hashlib.sha256()
    while chunk := request.read(1000):
        value.update(chunk)
    return value.hexdigest()


#: How a plain view may read what was sent.
READERS: dict[str, Callable[[HttpRequest], Any]] = {
    "form": lambda request: seen(request.POST.dict(), request.FILES),
    "body": lambda request: digest(request.body),
    "stream": streamed,
    "json": lambda request: json.loads(request.body),
    "ignored": lambda request: None,
}


def reading(request: HttpRequest, how: str) -> HttpResponse:
    try:
        found = READERS[how](request)
    except (ValueError, RecursionError):
        return HttpResponse("no JSON", status=400)
    return JsonResponse([found, work()], status=201, safe=False)


class ReadingView(APIView):
    """`how` chooses the parser; the permission may read the data first."""

    permission_classes = ()

    def get_parsers(self) -> list[BaseParser]:
        parsers: dict[str, list[type[BaseParser]]] = {
            "form": [FormParser, MultiPartParser],
            "json": [JSONParser],
            "file": [FileUploadParser],
            "ignored": [FormParser, MultiPartParser],
        }
        return [parser() for parser in parsers[self.kwargs["how"]]]

    def check_permissions(self, request: Request) -> None:
        if "early" in request.query_params:
            assert request.data is not None

    def post(self, request: Request, how: str) -> Response:
        if how == "ignored":
            return Response([None, work()], status=201)
        pairs = (
            request.data.items() if hasattr(request.data, "items") else {"": request.data}.items()
        )
        data = {name: value for name, value in pairs if name not in request.FILES}
        return Response([seen(data, request.FILES), work()], status=201)

    put = post


def reading_api() -> Callable[..., Response]:
    """Make a function for `@api_view` that ignores what was sent."""

    @parser_classes([FormParser, MultiPartParser])
    @permission_classes([])
    def ignoring(request: Request, how: str) -> Response:
        return Response([None, work()], status=201)

    return ignoring


# ------------------------------------------------------------------------------------------- access


def pay(request: HttpRequest) -> HttpResponse:
    return HttpResponse(work(), status=201)


class PayView(View):
    def post(self, request: HttpRequest) -> HttpResponse:
        return pay(request)


class ForLoggedIn(mixins.LoginRequiredMixin, PayView):
    pass


class ForPermitted(mixins.PermissionRequiredMixin, PayView):
    permission_required = "payments.add_charge"


class ForPermittedRaising(ForPermitted):
    raise_exception = True


class ForSuperusers(mixins.UserPassesTestMixin, PayView):
    login_url = "/elsewhere/"

    def test_func(self) -> bool:
        user: Any = self.request.user
        return bool(user.is_superuser)


@method_decorator(login_required(login_url="/elsewhere/"), name="dispatch")
class ForLoggedInByDecorator(PayView):
    pass


class AllAtOnce(BaseThrottle):
    """Lets superusers through, so that every rule here has a user who passes."""

    def allow_request(self, request: Request, view: APIView) -> bool:
        return bool(getattr(request.user, "is_superuser", False))

    def wait(self) -> float:
        return 7


class MayAddCharges(permissions.BasePermission):
    def has_permission(self, request: Request, view: APIView) -> bool:
        return bool(request.user.has_perm("payments.add_charge"))


class PayApi(APIView):
    def post(self, request: Request) -> Response:
        return Response({"id": work()}, status=201)
