"""Half a request is no request: a body that is shorter than its Content-Length runs nothing, and
binds nothing to its key.

A WSGI server passes on what came before a client's network died, as though it were all. The tests
send that: fewer bytes than announced, and then the end of the stream.
tests/faults/test_cut_uploads.py cuts real connections.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from io import BytesIO
from tempfile import SpooledTemporaryFile
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth.models import User
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory, override_settings
from django.urls import path

from django_idempotency import Policy, idempotent
from django_idempotency.conf import resolve
from django_idempotency.errors import BodyIncomplete
from django_idempotency.http.admission import fingerprint
from django_idempotency.http.bodies import IN_MEMORY
from django_idempotency.models import IdempotencyRecord

from . import urls, views
from .conftest import KEY, effects
from .test_uploads import BIG, CSRF, FORM, encoded

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
]


def by_function(request: Any) -> bytes:
    return b"the same"


#: How a key's request is recognized: each reads another part of the body before the view, or none.
FINGERPRINTS = {
    "by value": "request",
    "by bytes": "raw",
    "by headers": "headers",
    "by a function": by_function,
    "by an expression": "headers.host",
    "by an expression over the body": "body.order",
}
JSON = json.dumps({"order": "7", "amount": 10_000, "note": "x" * 40}).encode()
#: A body of each kind, of which the last bytes can be missing unnoticed: its type, and how a view
#: reads it.
BODIES: dict[str, tuple[bytes, str, str]] = {
    "json": (JSON + b" " * 20, "application/json", "json"),
    "long json": (
        b'{"a": "%b"}' % (b"x" * (IN_MEMORY + 1)) + b" " * 20,
        "application/json",
        "ignored",
    ),
    "urlencoded": (b"order=7&amount=10000" + b"0" * 20, FORM, "form"),
    "multipart": (*encoded("one", content=b"p" * 500), "form"),
    "long multipart": (*encoded("one"), "form"),
    "bytes": (b"p" * 1000, "application/octet-stream", "ignored"),
    "long bytes": (BIG, "application/octet-stream", "ignored"),
}
ENTRY_POINTS = tuple(urls.READING)


def selected(how: str) -> Any:
    """Return a view whose key is in the body, or a function's."""
    key: Any = {"expression": "body.order", "function": lambda request: request.POST.get("order")}[
        how
    ]
    return idempotent(key=key, required=True)(views.reading)


async def asynchronous(request: HttpRequest) -> HttpResponse:
    """Django serves it under WSGI, too."""
    return HttpResponse(await sync_to_async(views.work)(), status=201)


urlpatterns = [
    *urls.urlpatterns,
    *(path(f"selected/{how}/<how>/", selected(how)) for how in ("expression", "function")),
    path("async/", idempotent(guarantee="lease")(asynchronous)),
]


class Cutting:
    """Sends what is left of a request."""

    def __init__(self, user: User, **options: Any) -> None:
        self.client = Client(raise_request_exception=False, **options)
        self.client.force_login(user)

    def __call__(
        self,
        address: str,
        body: bytes,
        content_type: str,
        *,
        missing: int = 0,
        key: str | None = KEY,
        **extra: Any,
    ) -> Any:
        if key is not None:
            extra["HTTP_IDEMPOTENCY_KEY"] = key
        sent = {"CONTENT_TYPE": content_type, "CONTENT_LENGTH": str(len(body)), **extra}
        sent["wsgi.input"] = BytesIO(body[: len(body) - missing])
        return self.client.generic("POST", f"/{address}", **sent)


@pytest.fixture
def send(user: User) -> Cutting:
    return Cutting(user)


def assert_refused(response: Any) -> None:
    """It says what happened and what to do, and nothing has."""
    assert response.status_code == 400
    problem = response.json()
    assert (problem["code"], problem["retry"]) == ("body-incomplete", "same-key")
    assert (response["Idempotency-Status"], response["Retry-After"]) == ("refused", "1")
    assert (effects(), IdempotencyRecord.objects.count()) == (0, 0)


@pytest.mark.parametrize("rule", FINGERPRINTS)
@pytest.mark.parametrize("entry_point", ["decorator", "mixin"])
@pytest.mark.parametrize("kind", BODIES)
def test_each_body_under_each_fingerprint(
    send: Cutting, kind: str, entry_point: str, rule: str
) -> None:
    """Whatever is compared of it, a cut body is refused, and the complete retry with the same key
    is carried out once.
    """
    body, content_type, how = BODIES[kind]
    address = f"{entry_point}/reading/{how}/"
    with override_settings(IDEMPOTENCY={"FINGERPRINT": FINGERPRINTS[rule]}):
        assert_refused(send(address, body, content_type, missing=1))
        first, retry = send(address, body, content_type), send(address, body, content_type)
    if how == "ignored" or first.status_code == 201:
        assert (first.status_code, retry.content, retry["Idempotent-Replayed"]) == (
            201,
            first.content,
            "true",
        )
        assert effects() == 1


@pytest.mark.parametrize("missing", [1, 10, len(JSON)])
@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
@pytest.mark.parametrize("kind", ["json", "urlencoded", "multipart", "bytes"])
def test_each_entry_point(send: Cutting, kind: str, entry_point: str, missing: int) -> None:
    """Each refuses before the view, which would ignore the body: one byte short is as short as
    all.
    """
    body, content_type, _ = BODIES[kind]
    address = f"{entry_point}/reading/ignored/"
    assert_refused(send(address, body, content_type, missing=min(missing, len(body))))
    assert send(address, body, content_type).status_code == 201
    assert effects() == 1


@pytest.mark.parametrize("how", ["expression", "function"])
@pytest.mark.parametrize("kind", ["urlencoded", "multipart", "json"])
def test_a_key_that_is_selected_from_the_body(send: Cutting, kind: str, how: str) -> None:
    """Half a body has no key: the rest of the key, or of what is done under it, may be missing."""
    body, content_type, reads = BODIES[kind]
    refused = send(f"selected/{how}/{reads}/", body, content_type, missing=1, key=None)
    assert_refused(refused)


def test_an_async_view(send: Cutting) -> None:
    """Its body is read and judged in a thread."""
    assert_refused(send("async/", JSON, "application/json", missing=1))
    assert send("async/", JSON, "application/json").status_code == 201


@pytest.mark.parametrize("kind", ["urlencoded", "multipart", "long multipart"])
@pytest.mark.parametrize("entry_point", ["decorator", "middleware"])
def test_a_form_that_the_check_of_its_token_has_parsed(
    user: User, entry_point: str, kind: str
) -> None:
    """Django's CSRF check reads a form before any guard: what it has left of the stream says how
    much came.
    """
    send = Cutting(user, enforce_csrf_checks=True)
    send.client.cookies["csrftoken"] = CSRF
    body, content_type, _ = BODIES[kind]
    token = (
        b'--one\r\nContent-Disposition: form-data; name="csrfmiddlewaretoken"\r\n\r\n%b\r\n'
        % CSRF.encode()
    )
    body = (
        b"csrfmiddlewaretoken=%b&%b" % (CSRF.encode(), body)
        if content_type == FORM
        else token + body
    )
    address = f"{entry_point}/reading/form/"
    assert_refused(send(address, body, content_type, missing=8))
    assert send(address, body, content_type).status_code == 201


@pytest.mark.parametrize("entry_point", ["mixin", "adapted"])
@pytest.mark.parametrize(
    ("kind", "how"), [("json", "json"), ("urlencoded", "form"), ("long multipart", "form")]
)
def test_data_that_a_permission_has_read(
    send: Cutting, entry_point: str, kind: str, how: str
) -> None:
    """REST framework's parser takes what is there; the guard asks the stream behind it."""
    body, content_type, _ = BODIES[kind]
    assert_refused(send(f"{entry_point}/reading/{how}/?early", body, content_type, missing=4))


class Unreachable(BytesIO):
    """The input of a server that says when its client has gone, as uWSGI and mod_wsgi do."""

    def read(self, *_: Any) -> bytes:
        raise OSError("request data read error")


@pytest.mark.parametrize("entry_point", ["decorator", "middleware", "mixin"])
@pytest.mark.parametrize("size", [40, IN_MEMORY + 1])
def test_a_server_that_says_that_its_client_has_gone(
    send: Cutting, entry_point: str, size: int
) -> None:
    """One situation has one ending: an error of the server's input is an incomplete body."""
    extra: dict[str, Any] = {
        "wsgi.input": Unreachable(),
        "CONTENT_LENGTH": str(size),
        "CONTENT_TYPE": "application/json",
    }
    response = send.client.generic(
        "POST", f"/{entry_point}/reading/ignored/", **extra, headers={"Idempotency-Key": KEY}
    )
    assert_refused(response)


def test_without_a_key_it_is_the_views(send: Cutting) -> None:
    """A request without a key is as it would be without us."""
    body, content_type, how = BODIES["urlencoded"]
    assert (
        send(f"decorator/reading/{how}/", body, content_type, missing=3, key=None).status_code
        == 201
    )


def test_what_is_wrong_with_the_key_is_said_first(send: Cutting) -> None:
    """A request that is refused for its key is refused for that, unread."""
    body, content_type, how = BODIES["urlencoded"]
    response = send(f"decorator/reading/{how}/", body, content_type, missing=3, key="a,b")
    assert response.json()["code"] == "key-malformed"


@override_settings(IDEMPOTENCY={"MODE": "django_idempotency.contrib.observe.OBSERVE"})
def test_who_only_observes_reports_it(send: Cutting, caplog: pytest.LogCaptureFixture) -> None:
    """The view runs as without us, and the report says what a guard would have done."""
    body, content_type, how = BODIES["urlencoded"]
    with caplog.at_level("DEBUG", logger="django_idempotency"):
        assert send(f"decorator/reading/{how}/", body, content_type, missing=3).status_code == 201
    assert "body-incomplete" in caplog.text
    assert not IdempotencyRecord.objects.exists()


@pytest.mark.parametrize("state", ["unread", "in memory", "parsed"])
@pytest.mark.parametrize("rule", ["request", "raw", "headers"])
def test_on_asgi(rule: str, state: str) -> None:
    """Django has the whole body in a file there, and ends a request whose client has gone; a server
    may not have said so.
    """
    body, content_type, _ = BODIES["multipart"]

    about = [(b"content-length", str(len(body)).encode()), (b"content-type", content_type.encode())]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": about, "query_string": b""}

    def digest(sent: bytes) -> bytes:
        with SpooledTemporaryFile(max_size=IN_MEMORY) as file:
            file.write(sent)
            file.seek(0)
            request = ASGIRequest(scope, file)
            if state != "unread":
                assert request.body if state == "in memory" else request.POST
            return fingerprint(request, resolve(Policy(fingerprint=rule)))

    with pytest.raises(BodyIncomplete):
        digest(body[:-1])
    assert digest(body) == digest(body)


# --------------------------------------------------------------------- what is no half of a request

Prepare = Callable[[HttpRequest], None]
PLAIN = json.dumps({"order": "7"}).encode()
PACKED = gzip.compress(PLAIN)


def bytes_only(request: HttpRequest) -> None:
    request._body = gzip.decompress(request.body)


def decrypted(request: HttpRequest) -> None:
    """Nothing says that it was encrypted."""
    bytes_only(request)
    del request.META["HTTP_CONTENT_ENCODING"]


def bytes_and_stream(request: HttpRequest) -> None:
    request._body = gzip.decompress(request.body)
    request._stream = BytesIO(request._body)


def bytes_and_length(request: HttpRequest) -> None:
    bytes_and_stream(request)
    request.META["CONTENT_LENGTH"] = str(len(request._body))
    del request.META["HTTP_CONTENT_ENCODING"]


class Decoder:
    """A stream as such middlewares write them: it can be read."""

    def __init__(self, source: Any) -> None:
        self.read = BytesIO(gzip.decompress(source.read())).read

    def close(self) -> None:
        pass


def stream(request: HttpRequest) -> None:
    request._stream = Decoder(request._stream)  # type: ignore[assignment]


def stream_of_unknown_length(request: HttpRequest) -> None:
    stream(request)
    del request.META["HTTP_CONTENT_ENCODING"]


#: What a middleware does to a request that came compressed: its bytes become fewer than its
#: Content-Length says.
REPLACED: dict[str, Prepare] = {
    each.__name__: each
    for each in (
        bytes_only,
        decrypted,
        bytes_and_stream,
        bytes_and_length,
        stream,
        stream_of_unknown_length,
    )
}


class Replacing:
    """Decompresses a request as `prepare` does."""

    prepare: Prepare

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        type(self).prepare(request)
        return self.get_response(request)


@override_settings(MIDDLEWARE=[f"{__name__}.Replacing", *settings.MIDDLEWARE])
@pytest.mark.parametrize("entry_point", ["decorator", "middleware", "mixin"])
@pytest.mark.parametrize("rule", ["request", "raw", "headers"])
@pytest.mark.parametrize("how", REPLACED)
def test_a_body_that_a_middleware_has_replaced(
    send: Cutting, how: str, rule: str, entry_point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was decompressed is shorter than its Content-Length, and all there."""
    assert len(PACKED) > len(PLAIN)
    monkeypatch.setattr(Replacing, "prepare", staticmethod(REPLACED[how]), raising=False)
    address = f"{entry_point}/reading/json/"
    with override_settings(IDEMPOTENCY={"FINGERPRINT": rule}):
        responses = [
            send(address, PACKED, "application/json", HTTP_CONTENT_ENCODING="gzip")
            for _ in range(2)
        ]
    assert [response.status_code for response in responses] == [201, 201]
    assert (responses[1]["Idempotent-Replayed"], effects()) == ("true", 1)


def test_what_is_still_compressed_can_be_cut(send: Cutting) -> None:
    """The view itself would decompress it: it is shorter than announced, whatever its coding is."""
    response = send(
        "decorator/reading/ignored/",
        PACKED,
        "application/json",
        missing=1,
        HTTP_CONTENT_ENCODING="gzip",
    )
    assert_refused(response)


@pytest.mark.parametrize("length", ["", "nonsense", None])
def test_without_a_length_nothing_is_announced(length: str | None) -> None:
    """Django reads no body then, and none is missing."""
    environ: dict[str, Any] = {
        "wsgi.input": BytesIO(b"x"),
        "CONTENT_LENGTH": length,
        "CONTENT_TYPE": "text/plain",
    }
    if length is None:
        del environ["CONTENT_LENGTH"]
    request = RequestFactory().generic("POST", "/", **environ)
    assert fingerprint(request, resolve(Policy(fingerprint="headers"))) == fingerprint(
        request, resolve(Policy(fingerprint="headers"))
    )


def test_a_view_that_begins_to_read_is_left_alone() -> None:
    """Who has taken a part of a stream, unparsed, finds the rest of it after the guard."""
    request = RequestFactory().post("/", b"head and body", content_type="text/plain")
    assert request.read(4) == b"head"
    fingerprint(request, resolve(Policy(fingerprint="headers")))
    assert request.read() == b" and body"
