"""A request without a key: under no profile does it cost anything, nor is it refused anything."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any, NamedTuple

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.files.uploadhandler import MemoryFileUploadHandler
from django.db import connections
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import path
from django.views import View
from django.views.decorators.csrf import csrf_exempt
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import idempotent
from tests.support.dialects import DIALECTS

from .views import work

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
]

OURS = "django_idempotency.middleware.IdempotencyMiddleware"
BARE = [name for name in settings.MIDDLEWARE if name != OURS]
MEBIBYTE = 1024 * 1024


class Body(BytesIO):
    """What a client sends: it counts what is read of it."""

    taken = 0

    def read(self, size: int | None = -1) -> bytes:
        found = super().read(size)
        self.taken += len(found)
        return found

    def readline(self, size: int | None = -1) -> bytes:
        found = super().readline(size)
        self.taken += len(found)
        return found


def said(request: HttpRequest, **found: Any) -> HttpResponse:
    """Respond with what had been read of the body before the view began, and what the view
    found.
    """
    return JsonResponse(
        {"before": request.META["body"].before, **found}, json_dumps_params={"default": repr}
    )


class Handler(MemoryFileUploadHandler):
    """A view's own."""


def unread(request: HttpRequest) -> HttpResponse:
    return said(request, work=bool(work()))


def whole(request: HttpRequest) -> HttpResponse:
    return said(request, body=len(request.body))


def parsed(request: HttpRequest) -> HttpResponse:
    return said(request, body=json.loads(request.body))


def streamed(request: HttpRequest) -> HttpResponse:
    return said(request, first=len(request.read(100)))


def fields(request: HttpRequest) -> HttpResponse:
    files: Any = request.FILES.items()
    return said(request, fields=dict(request.POST), files={name: file.size for name, file in files})


def handled(request: HttpRequest) -> HttpResponse:
    request.upload_handlers = [Handler(request)]
    return fields(request)


def missing(request: HttpRequest) -> HttpResponse:
    raise Http404


def failing(request: HttpRequest) -> HttpResponse:
    work()
    raise LookupError


def refusing(request: HttpRequest) -> HttpResponse:
    return HttpResponse(status=403)


class Classed(View):
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return super().dispatch(request, *args, **kwargs)

    post = put = patch = delete = lambda self, request: unread(request)


class Rest(APIView):
    authentication_classes = permission_classes = ()

    def post(self, request: Any) -> Response:
        before = request.META["body"].before
        return Response({"before": before, "data": repr(request.data)})


VIEWS: dict[str, Callable[..., Any]] = {
    view.__name__: csrf_exempt(view)
    for view in (unread, whole, parsed, streamed, fields, handled, missing, failing, refusing)
}
VIEWS |= {"classed": csrf_exempt(Classed.as_view()), "rest": Rest.as_view()}


def noting(view: Callable[..., Any]) -> Callable[..., Any]:
    """Note what was read of the body when the view begins."""

    def noted(request: HttpRequest) -> Any:
        request.META["body"].before = request.META["body"].taken
        return view(request)

    return csrf_exempt(noted)


#: The profiles whose APIs take a request without a key.
OPTIONAL = [name for name, each in DIALECTS.items() if not each.requires_key]
urlpatterns = [
    path(f"{name}/", view if name == "rest" else noting(view)) for name, view in VIEWS.items()
]
for _profile in DIALECTS.values():
    urlpatterns += [
        path(
            f"{_profile.name}/{name}/",
            idempotent(profile=_profile, scope=lambda _: "all")(noting(view)),
        )
        for name, view in VIEWS.items()
        if name != "rest" and _profile.name in OPTIONAL
    ]

    urlpatterns.append(
        path(
            f"required/{_profile.name}/unread/",
            idempotent(profile=_profile, required=True)(noting(unread)),
        )
    )


class Kind(NamedTuple):
    """A request: the view, and what is sent to it."""

    view: str
    body: bytes = b""
    content_type: str = ""
    method: str = "POST"
    #: More than this is promised than is there: nobody may look.
    length: int | None = None


JSON, FORM, MULTIPART = (
    "application/json",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=b",
)


def part(name: str, value: bytes, more: bytes = b"") -> bytes:
    return b'--b\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n' % (
        name.encode(),
        more,
        value,
    )


UPLOAD = (
    part("note", b"hi") + part("file", b"x" * (3 * MEBIBYTE), b'; filename="a.bin"') + b"--b--\r\n"
)
SMALL = part("note", b"hi") + part("file", b"xyz", b'; filename="a.bin"') + b"--b--\r\n"
KINDS = [
    *(
        Kind("unread", method=method)
        for method in ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")
    ),
    Kind("classed", b"{}", JSON, "PUT"),
    Kind("classed", b"{}", JSON, "DELETE"),
    Kind("unread", b'{"a": 1}', JSON),
    Kind("parsed", b'{"a": 1}', JSON),
    Kind("parsed", b"[1, 2]", JSON, "PATCH"),
    Kind("parsed", b'{"a": ', JSON),
    Kind("parsed", b"\xff", JSON),
    Kind("whole", b"x" * (2 * MEBIBYTE), JSON),
    Kind("whole", b"x" * (3 * MEBIBYTE), JSON),  # Django's own 400
    Kind("unread", b"x" * 1000, "application/octet-stream", length=33 * MEBIBYTE),
    Kind("unread", b"x" * 1000, MULTIPART, length=33 * MEBIBYTE),
    Kind("unread", b"x" * 1000, JSON, length=33 * MEBIBYTE),
    Kind("streamed", b"x" * 1000, "text/plain", length=1000 * MEBIBYTE),
    Kind("streamed", UPLOAD, MULTIPART),
    Kind("fields", b"a=1&a=2", FORM),
    Kind("fields", b"a=%ff&&=;", FORM),
    Kind("fields", SMALL, MULTIPART),
    Kind("fields", UPLOAD, MULTIPART),
    Kind("fields", b"--b\r\nbroken", MULTIPART),
    Kind("handled", SMALL, MULTIPART),
    Kind("handled", UPLOAD, MULTIPART),
    Kind("missing", b"{}", JSON),
    Kind("failing", b"a=1", FORM),
    Kind("refusing", b"{}", JSON),
    Kind("rest", b'{"a": 1}', JSON),
    Kind("rest", b"a=1", FORM),
]


def responses(
    client: Client, below: str = "", *, views: Callable[[Kind], bool] = lambda kind: True
) -> Iterator[Any]:
    """Send each kind.

    Yield its status, its bytes and headers, what was read of its body, and what the database was
    asked.
    """
    for kind in filter(views, KINDS):
        body = Body(kind.body)
        body.before = None  # type: ignore[attr-defined]
        length = len(kind.body) if kind.length is None else kind.length
        sent: dict[str, Any] = {"wsgi.input": body, "body": body, "CONTENT_LENGTH": str(length)}
        with CaptureQueriesContext(connections["default"]) as asked:
            found: Any = client.generic(
                kind.method, f"/{below}{kind.view}/", b"", content_type=kind.content_type, **sent
            )
        # A page of errors has the time in it.
        content = b"" if found.status_code >= 500 else found.content
        queries = [query["sql"].partition("VALUES")[0] for query in asked.captured_queries]
        yield kind, (found.status_code, content, sorted(found.items()), body.taken, queries)


def speaking_for(user: User | None) -> Client:
    """Return a client of the middleware that is installed now."""
    client = Client(raise_request_exception=False)
    if user is not None:
        client.force_login(user)
    return client


def differences(profile: str, user: User | None, **fields: Any) -> dict[Any, Any]:
    with override_settings(MIDDLEWARE=BARE, IDEMPOTENCY={}):
        expected = dict(responses(speaking_for(user)))
    assert {answer[0] for answer in expected.values()} >= {200, 400, 403, 404, 500}
    with override_settings(
        MIDDLEWARE=[*BARE, OURS], IDEMPOTENCY={"PROFILE": DIALECTS[profile], **fields}
    ):
        return {
            kind.view: (expected[kind], answer)
            for kind, answer in responses(speaking_for(user))
            if answer != expected[kind]
        }


@pytest.mark.parametrize("anonymous", [True, False], ids=["anonymous", "user"])
@pytest.mark.parametrize("profile", OPTIONAL)
def test_under_the_middleware(profile: str, anonymous: bool, user: User) -> None:
    """Status, bytes, headers, what is read of a body, and queries are those of a project without
    the middleware.
    """
    assert len(KINDS) >= 30
    assert differences(profile, None if anonymous else user) == {}


@pytest.mark.parametrize("profile", [each for each in OPTIONAL if DIALECTS[each].carrier != "body"])
def test_under_a_decorator(profile: str) -> None:
    """The same holds for a guarded view, unless its key may be in the body."""
    client = Client(raise_request_exception=False)

    def undone(kind: Kind) -> bool:
        return kind.view != "rest"

    with override_settings(MIDDLEWARE=BARE):
        expected = dict(responses(client, views=undone))
        found = dict(responses(client, f"{profile}/", views=undone))
    assert {
        kind: (expected[kind], found[kind]) for kind in expected if expected[kind] != found[kind]
    } == {}


@pytest.mark.parametrize(
    "profile", [name for name, profile in DIALECTS.items() if profile.carrier == "body"]
)
def test_a_key_that_may_be_in_the_body(profile: str) -> None:
    """A view that is guarded so reads forms and JSON, and nothing else: first who it is, then the
    type, then the length.
    """
    client = Client(raise_request_exception=False)

    def other(kind: Kind) -> bool:
        return not kind.content_type.startswith((JSON, FORM, "multipart"))

    def guarded(kind: Kind) -> bool:
        return kind.view == "unread" and kind.method in ("POST", "PUT", "PATCH", "DELETE")

    with override_settings(MIDDLEWARE=BARE):
        expected = dict(responses(client, views=other))
        if profile in OPTIONAL:
            assert dict(responses(client, f"{profile}/", views=other)) == expected
        for _, (status, content, _, read, queries) in responses(
            client, f"required/{profile}/", views=guarded
        ):
            assert (status, b"client" in content, read, queries) == (400, True, 0, [])
