"""gunicorn, and clients whose network dies in the middle of an upload: what came is not carried
out, and not remembered.

gunicorn ends the body where the connection ends, and gives Django what came by then.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest

from django_idempotency.models import IdempotencyRecord

from .clients import CHARGE, assert_replay, new_key
from .database import effects
from .plans import PATIENCE, Faults
from .servers import Server, gunicorn

pytestmark = [
    pytest.mark.faults,
    pytest.mark.either_server,
    pytest.mark.django_db(transaction=True),
]

PART = (
    b'--b\r\nContent-Disposition: form-data; name="%b"; filename="f"\r\nContent-Type: '
    b"image/png\r\n\r\n%b\r\n--b--\r\n"
)
#: Kind → content type and body. What is longer than 1 MiB is spooled to disk by the guard.
BODIES = {
    "json": ("application/json", json.dumps(CHARGE).encode() + b"\n" * 9),
    "urlencoded": ("application/x-www-form-urlencoded", b"order=7&amount=10000"),
    "multipart": ("multipart/form-data; boundary=b", PART % (b"slip", b"p" * 2000)),
    "long multipart": ("multipart/form-data; boundary=b", PART % (b"slip", b"p" * 3_000_000)),
    "bytes": ("application/octet-stream", b"p" * 2000),
    "long bytes": ("application/octet-stream", b"p" * 3_000_000),
}
PATHS = ("/open/decorator/", "/open/middleware/", "/open/mixin/", "/open/by-headers/")


@pytest.fixture(scope="module")
def _sync(faults_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with gunicorn(tmp_path_factory.mktemp("sync"), (1, 1)) as server:
        yield server


@pytest.fixture(params=["gthread", "sync"])
def server(request: pytest.FixtureRequest) -> Server:
    found = request.getfixturevalue({"gthread": "fleet", "sync": "_sync"}[request.param])
    assert isinstance(found, Server)
    return found


def headers(key: str, content_type: str) -> dict[str, str]:
    return {"Idempotency-Key": key, "Content-Type": content_type, "X-Customer": "c-1"}


def cut(
    server: Server, path: str, about: Mapping[str, str], body: bytes, *, missing: int
) -> socket.socket:
    """Announce a body, and send all of it but so many bytes."""
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: 127.0.0.1:{server.port}",
        f"Content-Length: {len(body)}",
    ]
    lines += [f"{name}: {value}" for name, value in about.items()]
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
    connection.sendall("\r\n".join([*lines, "", ""]).encode() + body[: len(body) - missing])
    return connection


def answer(connection: socket.socket) -> tuple[int, dict[str, object]]:
    """Let the server read the end, and return the status and the document of its response."""
    connection.shutdown(socket.SHUT_WR)
    received = b"".join(iter(lambda: connection.recv(65_536), b""))
    head, _, document = received.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(document)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", BODIES)
def test_half_an_upload(server: Server, faults: Faults, kind: str, path: str) -> None:
    """It is refused, and leaves nothing; the complete retry with its key is carried out once."""
    content_type, body = BODIES[kind]
    key = new_key()
    about = headers(key, content_type)
    with cut(server, path, about, body, missing=3) as connection:
        status, problem = answer(connection)
    assert (status, problem["code"], problem["retry"]) == (400, "body-incomplete", "same-key")
    assert (effects(key), IdempotencyRecord.objects.filter(key=key).count()) == (0, 0)
    with httpx.Client(timeout=PATIENCE, trust_env=False) as client:
        first, retry = (
            client.post(server.url + path, content=body, headers=about) for _ in range(2)
        )
    assert (first.status_code, first.json()["attempt"]) == (201, 1)
    assert_replay(retry, first)
    assert effects(key) == 1


@pytest.mark.parametrize("kind", ["urlencoded", "long bytes"])
def test_nobody_waits_for_the_answer(server: Server, faults: Faults, kind: str) -> None:
    """A connection that breaks off without a goodbye leaves as little."""
    content_type, body = BODIES[kind]
    key = new_key()
    about = headers(key, content_type)
    cut(server, "/open/by-headers/", about, body, missing=3).close()
    with httpx.Client(timeout=PATIENCE, trust_env=False) as client:
        first = client.post(f"{server.url}/open/by-headers/", content=body, headers=about)
    assert (first.status_code, first.json()["length"], first.json()["attempt"]) == (
        201,
        len(body),
        1,
    )
    assert effects(key) == 1


@pytest.mark.parametrize("path", ["/open/middleware/", "/open/by-headers/", "/async/decorator/"])
def test_an_asgi_server_tells(asgi: Server, faults: Faults, path: str) -> None:
    """Django ends such a request itself, before any view: its client gets no response, and repeats
    it whole.
    """
    content_type, body = BODIES["urlencoded"]
    key = new_key()
    about = headers(key, content_type)
    with cut(asgi, path, about, body, missing=3) as connection:
        connection.shutdown(socket.SHUT_WR)
        assert b"201" not in connection.recv(65_536)
    assert (effects(key), IdempotencyRecord.objects.filter(key=key).count()) == (0, 0)
    with httpx.Client(timeout=PATIENCE, trust_env=False) as client:
        assert client.post(asgi.url + path, content=body, headers=about).json()["attempt"] == 1
