"""What a client sends: large, odd and broken bodies, with and without a key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client, override_settings
from django.test.client import encode_multipart

from django_idempotency.core.records import Status
from django_idempotency.models import IdempotencyRecord

from .conftest import KEY, effects
from .urls import READING
from .views import digest

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("tests.entry_points.urls"),
]

BIG = b"\x89PNG" + bytes(range(256)) * 12_288  # 3 MB, above Django's DATA_UPLOAD_MAX_MEMORY_SIZE
PLAIN, REST = ("decorator", "middleware"), ("mixin", "adapted")
ENTRY_POINTS = (*PLAIN, *REST)
FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data; boundary=b"
PART = b'--b\r\nContent-Disposition: form-data; name="%d"\r\n\r\nx\r\n'
CSRF = "s" * 32


class Uploader:
    def __init__(self, user: User, **options: Any) -> None:
        self.client = Client(raise_request_exception=False, **options)
        self.client.force_login(user)

    def __call__(
        self,
        address: str,
        body: Any,
        content_type: str,
        *,
        key: str | None = KEY,
        method: str = "POST",
        **headers: str,
    ) -> Any:
        if key is not None:
            headers["Idempotency-Key"] = key
        return self.client.generic(method, f"/{address}", body, content_type, headers=headers)


@pytest.fixture
def send(user: User) -> Uploader:
    return Uploader(user)


def through_entry_points(bodies: Mapping[str, tuple[bytes, str]], one: str) -> list[Any]:
    """Send each body through one parsing entry point of plain Django and one of REST framework, and
    one through all.
    """
    return [
        pytest.param(entry_point, *body, id=f"{name}-{entry_point}")
        for name, body in bodies.items()
        for entry_point in (ENTRY_POINTS if name == one else (PLAIN[0], REST[0]))
    ]


def form(content: bytes = BIG, *, note: str = "a") -> dict[str, Any]:
    """Make a form with a file; the test client makes a new boundary if asked to."""
    return {"note": note, "receipt": SimpleUploadedFile("r.png", content, "image/png")}


def encoded(boundary: str, **fields: Any) -> tuple[bytes, str]:
    return encode_multipart(boundary, form(**fields)), f"multipart/form-data; boundary={boundary}"


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_a_large_form_passes_and_replays_under_a_new_boundary(
    send: Uploader, entry_point: str
) -> None:
    """The view reads fields and files from their start; a changed file, name or field is another
    request.
    """
    address = f"{entry_point}/reading/form/"
    first = send(address, *encoded("one"))
    assert first.status_code == 201
    assert first.json()[0] == {"fields": {"note": "a"}, "files": {"receipt": digest(BIG)}}
    retry = send(address, *encoded("another"))
    assert (retry.content, retry["Idempotent-Replayed"]) == (first.content, "true")
    assert send(address, *encoded("one", content=BIG[:-1] + b"\0")).status_code == 422
    assert send(address, *encoded("one", note="b")).status_code == 422
    assert effects() == 1


@pytest.mark.parametrize(
    "address",
    [
        *(f"{entry_point}/reading/stream/" for entry_point in PLAIN),
        *(f"{entry_point}/reading/file/" for entry_point in REST),
    ],
)
@pytest.mark.parametrize("size", [0, 1000, len(BIG)])
def test_a_raw_upload_passes(send: Uploader, address: str, size: int) -> None:
    """An upload reaches a view that streams, or DRF's FileUploadParser, in full."""
    disposition = {"Content-Disposition": "attachment; filename=r.png"}
    body = BIG[:size]
    bare = send(address, body, "image/png", key=None, **disposition)
    first, retry = (send(address, body, "image/png", **disposition) for _ in range(2))
    assert first.status_code == retry.status_code == bare.status_code
    if size:
        assert digest(body) in first.content.decode()
        assert first.json()[0] == bare.json()[0]
        assert retry.content == first.content
        assert send(address, body[:-1] + b"\0", "image/png", **disposition).status_code == 422
        assert effects() == 2


@pytest.mark.parametrize(
    "address",
    [
        *(f"{entry_point}/reading/body/" for entry_point in PLAIN),
        *(f"{entry_point}/reading/json/" for entry_point in REST),
    ],
)
def test_large_json_meets_the_views_own_limit(send: Uploader, address: str) -> None:
    """Django refuses it where the view reads the body, as DRF does since 3.18; a key changes
    neither.
    """
    body = json.dumps({"a": "x" * len(BIG)})
    statuses = [
        send(address, body, "application/json", key=key).status_code for key in (None, KEY, KEY)
    ]
    assert statuses in ([400] * 3, [201] * 3)
    assert statuses[0] == 400 or address.split("/", maxsplit=1)[0] in REST
    assert effects() == (2 if statuses[0] == 201 else 0)


@override_settings(IDEMPOTENCY={"MAX_REQUEST_BODY": 1000})
@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
@pytest.mark.parametrize(
    "content_type", ["application/octet-stream", "application/json", FORM, MULTIPART]
)
def test_more_than_is_compared_is_refused(
    send: Uploader, entry_point: str, content_type: str
) -> None:
    """413: nothing runs, and the key is free. Without a key the view decides."""
    address = f"{entry_point}/reading/ignored/"
    refused = send(address, b"x" * 1001, content_type)
    assert (refused.status_code, refused.json()["code"]) == (413, "request-too-large")
    assert (effects(), IdempotencyRecord.objects.count()) == (0, 0)
    assert send(address, b"x" * 1001, content_type, key=None).status_code == 201


@pytest.mark.parametrize("entry_point", PLAIN)
@pytest.mark.parametrize("size", [1000, len(BIG)])
def test_a_view_that_streams_a_form_gets_all_of_it(
    send: Uploader, entry_point: str, size: int
) -> None:
    """A form that was parsed for the comparison is there again as bytes."""
    body, content_type = encoded("b", content=BIG[:size])
    first = send(f"{entry_point}/reading/stream/", body, content_type)
    assert (first.status_code, digest(body) in first.content.decode()) == (201, True)


FIELD = b'--b\r\nContent-Disposition: form-data; name="a"'
BROKEN_FORMS: dict[str, tuple[bytes, str]] = {
    "too many fields": ("&".join(f"a{n}=1" for n in range(1001)).encode(), FORM),
    "too many parts": (b"".join(PART % n for n in range(1001)) + b"--b--\r\n", MULTIPART),
    "no boundary": (b"x", "multipart/form-data"),
    "an empty boundary": (b"x", "multipart/form-data; boundary="),
    "another boundary": (b"x", MULTIPART),
    "no parts": (b"", MULTIPART),
    "a part without an end": (FIELD + b'; filename="x"\r\n', MULTIPART),
    "bad base64": (
        FIELD + b"\r\nContent-Transfer-Encoding: base64\r\n\r\n!\r\n--b--\r\n",
        MULTIPART,
    ),
    "UTF-7": (FIELD + b"\r\n\r\nx\r\n--b--\r\n", f"{MULTIPART}; charset=utf-7"),
    "a lone surrogate": (FIELD + b"\r\n\r\n+2AA-\r\n--b--\r\n", f"{MULTIPART}; charset=utf-7"),
    "no UTF-8": (b"a=%FF%FE", FORM),
    "UTF-16": (b"a=1", f"{FORM}; charset=utf-16"),
    "no charset": (b"a=1", f"{FORM}; charset=nonsense"),
    "a charset that is no encoding of text": (b"a=1", f"{MULTIPART}; charset=base64"),
    "larger than Django takes": (b"x" * len(BIG), FORM),
    "no text": (b"\xff\x00", FORM),
}


@pytest.mark.parametrize(
    ("entry_point", "body", "content_type"), through_entry_points(BROKEN_FORMS, "no boundary")
)
def test_a_broken_form_ends_as_it_does_without_a_key(
    send: Uploader, entry_point: str, body: Any, content_type: str
) -> None:
    """Too many fields, no boundary, an odd charset: the same status as without a key, and never
    500.
    """
    address = f"{entry_point}/reading/form/"
    bare = send(address, body, content_type, key=None)
    assert bare.status_code in (201, 400, 415)
    ran = effects()
    for _ in range(2):
        assert send(address, body, content_type).status_code == bare.status_code
    if bare.status_code != 201:
        assert effects() == ran == 0


@pytest.mark.parametrize("entry_point", READING)
@pytest.mark.parametrize(
    "broken", ["too many fields", "too many parts", "no boundary", "bad base64", "UTF-16"]
)
def test_a_broken_form_that_is_ignored_runs_and_replays(
    send: Uploader, entry_point: str, broken: str
) -> None:
    """A client's header never makes a view refuse a body that it does not read; the body is still
    compared.
    """
    address, (body, content_type) = f"{entry_point}/reading/ignored/", BROKEN_FORMS[broken]
    assert send(address, body, content_type, key=None).status_code == 201
    first, retry = (send(address, body, content_type) for _ in range(2))
    assert (first.status_code, retry.status_code, retry.content) == (201, 201, first.content)
    assert retry["Idempotent-Replayed"] == "true"
    assert send(address, b"x=7", content_type).status_code == 422
    assert effects() == 2


BROKEN_JSON: dict[str, tuple[bytes, str]] = {
    "cut": (b"{", "application/json"),
    "empty": (b"", "application/json"),
    "no UTF-8": (b"\xff", "application/json"),
    "a byte order mark": (b"\xef\xbb\xbf{}", "application/json"),
    "NaN": (b"NaN", "application/json"),
    "too deep": (b"[" * 100_000, "application/json"),
    "too long a number": (b'{"a":' + b"9" * 5000 + b"}", "application/json"),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), "application/json; charset=utf-16"),
    "no charset": (b'{"a": 1}', "application/json; charset=nonsense"),
    "a lone surrogate": (b'{"a": "\\ud800"}', "application/json"),
    "a type that is none": (b"{}", "\xff/\xfe"),
    "only parameters": (b"{}", ";;;"),
}


@pytest.mark.parametrize(
    ("entry_point", "body", "content_type"), through_entry_points(BROKEN_JSON, "cut")
)
def test_broken_json_ends_as_it_does_without_a_key(
    send: Uploader, entry_point: str, body: bytes, content_type: str
) -> None:
    """Where the view or DRF's parser fails, it fails in the same way."""
    address = f"{entry_point}/reading/json/"
    bare = send(address, body, content_type, key=None)
    for _ in range(2):
        keyed = send(address, body, content_type)
        assert keyed.status_code == bare.status_code
    # DRF itself fails on JSON that is too deep.
    assert bare.status_code in (201, 400, 415) or entry_point in REST
    assert IdempotencyRecord.objects.filter(status=Status.COMPLETED).count() == (
        bare.status_code == 201
    )


@pytest.mark.parametrize("entry_point", REST)
@pytest.mark.parametrize("how", ["json", "form", "file"])
def test_a_permission_may_read_the_data_first(send: Uploader, entry_point: str, how: str) -> None:
    """Bytes that are gone do not make every body the same."""
    types = {"json": "application/json", "form": FORM, "file": "image/png"}
    bodies = {"json": (b'{"a": 1}', b'{"a": 2}'), "form": (b"a=1", b"a=2"), "file": (b"1", b"2")}[
        how
    ]
    address, headers = (
        f"{entry_point}/reading/{how}/?early",
        {"Content-Disposition": "attachment; filename=r.png"},
    )
    first = send(address, bodies[0], types[how], **headers)
    retry = send(address, bodies[0], types[how], **headers)
    assert (first.status_code, retry.content) == (201, first.content)
    assert send(address, bodies[1], types[how], **headers).status_code == 422


@pytest.mark.parametrize("entry_point", REST)
def test_a_form_by_put(send: Uploader, entry_point: str) -> None:
    """DRF parses the form; a new boundary is the same request."""
    address = f"{entry_point}/reading/form/"
    first = send(address, *encoded("one", content=b"1"), method="PUT")
    assert first.json()[0]["files"] == {"receipt": digest(b"1")}
    assert send(address, *encoded("two", content=b"1"), method="PUT").content == first.content
    assert send(address, *encoded("two", content=b"2"), method="PUT").status_code == 422


@pytest.mark.parametrize("entry_point", PLAIN)
def test_a_form_by_put_into_plain_django(send: Uploader, entry_point: str) -> None:
    """Django does not parse it: the view finds the bytes, and they are compared."""
    address = f"{entry_point}/reading/stream/"
    body, content_type = encoded("one")
    first = send(address, body, content_type, method="PUT")
    assert first.json()[0] == digest(body)
    assert send(address, body, content_type, method="PUT").content == first.content
    assert send(address, *encoded("two"), method="PUT").status_code == 422


@pytest.mark.parametrize("rule", ["request", "raw"])
@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_a_form_whose_csrf_token_was_checked(user: User, entry_point: str, rule: str) -> None:
    """The check parses the form before us; the view can still read it, and its content still
    counts.
    """
    send = Uploader(user, enforce_csrf_checks=True)
    send.client.cookies["csrftoken"] = CSRF
    address = f"{entry_point}/reading/form/"

    def fields(note: str) -> tuple[bytes, str]:
        body, content_type = encoded("one", content=b"1", note=note)
        token = (
            f'--one\r\nContent-Disposition: form-data; name="csrfmiddlewaretoken"\r\n\r\n{CSRF}\r\n'
        )
        return token.encode() + body, content_type

    with override_settings(IDEMPOTENCY={"FINGERPRINT": rule}):
        first, retry, other = (send(address, *fields(note)) for note in ("a", "a", "b"))
    assert first.status_code == 201
    assert first.json()[0]["fields"]["note"] == "a"
    assert first.json()[0]["files"] == {"receipt": digest(b"1")}
    assert (retry.content, other.status_code) == (first.content, 422)
