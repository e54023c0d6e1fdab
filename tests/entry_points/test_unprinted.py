"""Error reports print the variables of every frame: Django's mails to ADMINS by `repr()`, Sentry in
a way of its own.

Wherever a keyed request fails, they do not print what the client sent or gets, nor a secret of the
project. Neither do logs.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Iterator
from itertools import count
from types import TracebackType
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import Client
from django.urls import path
from pytest_django import Settings
from sentry_sdk.serializer import serialize

import django_idempotency
from django_idempotency import OnReplay, idempotent, signals
from django_idempotency.contrib.at_rest.sealed import Keyring
from django_idempotency.contrib.limits import Suspect
from django_idempotency.core import rules
from django_idempotency.engine.deferring import Deferring
from django_idempotency.stores.key_value import packing
from django_idempotency.stores.orm import ORMStore
from django_idempotency.stores.orm.statements import Statements
from tests.support.meters import RecordingMeter, installed

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
    pytest.mark.any_database,
]

KEY, BODY, HEADER, COOKIE, RESPONSE = (
    "canary-of-the-key-",
    "canary-of-body",
    "canary-of-header",
    "canary-cookie",
    "canary-response",
)
DERIVE_SECRET = "canary-of-derive-secret"
ENCRYPTION_KEY = base64.b64encode(b"canary-of-the-encryption-keys-32").decode()
CANARIES = (
    KEY,
    BODY,
    HEADER,
    COOKIE,
    RESPONSE,
    DERIVE_SECRET,
    ENCRYPTION_KEY,
    "canary-of-the-encryption",
)
SECRETS = {"DERIVE_SECRET": DERIVE_SECRET, "ENCRYPTION_KEYS": [ENCRYPTION_KEY]}
PACKAGE = django_idempotency.__path__[0]

#: The hook of the project that fails.
failing: list[str] = []
numbers = count()


class Failure(Exception):
    """What fails in each phase."""


def fail(*_: Any, **__: Any) -> Any:
    raise Failure


def hook(name: str, result: Callable[..., Any] = lambda *_: None) -> Callable[..., Any]:
    def call(*given: Any) -> Any:
        return fail() if name in failing else result(*given)

    return call


def view(request: HttpRequest) -> HttpResponse:
    hook("view")()
    return JsonResponse({"token": RESPONSE}, headers={"X-Token": HEADER}, status=201)


HOOKS: dict[str, Any] = {
    "scope": hook("scope", lambda request: "till"),
    "realm": hook("realm", lambda request: "shop"),
    "fingerprint": hook("fingerprint", lambda request: request.body),
    "keep": hook("keep"),
    "authorize_replay": hook("authorize_replay", lambda request, response: True),
}
RENDER = OnReplay(hook("on_replay", lambda request, response: response))
urlpatterns = [
    path("atomic/", idempotent(extensions=[RENDER], **HOOKS)(view)),
    path("lease/", idempotent(guarantee="lease", extensions=[RENDER], **HOOKS)(view)),
    path(
        "selected/",
        idempotent(
            key="body.card",
            extensions=[RENDER, Suspect(hook("suspect", lambda request: request.body))],
            **HOOKS,
        )(view),
    ),
    path("plain/", idempotent(scope=HOOKS["scope"])(view)),
]


def send(url: str, key: str | None = None) -> None:
    client = Client()
    client.cookies["sessionid"] = COOKIE
    client.post(
        url,
        json.dumps({"card": BODY}),
        content_type="application/json",
        headers={"Idempotency-Key": key or f"{KEY}{next(numbers)}", "Authorization": HEADER},
    )


def reports(error: BaseException | None) -> Iterator[tuple[str, str]]:
    """Yield every variable of our frames, of an error and those behind it, and what a report prints
    of it.
    """
    while error is not None:
        yield "the error", repr(error)
        trace: TracebackType | None = error.__traceback__
        while trace is not None:
            code = trace.tb_frame.f_code
            if code.co_filename.startswith(PACKAGE):
                for name, value in trace.tb_frame.f_locals.items():
                    where = f"{code.co_filename.removeprefix(PACKAGE)}: {name} in {code.co_name}()"
                    yield where, f"{value!r} {serialize({name: value}, is_vars=True)}"
            trace = trace.tb_next
        error = error.__cause__ or error.__context__


class Watch:
    """Sends requests that fail, and collects what is printed."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.caplog = caplog
        self.failed = 0
        self.printed: list[tuple[str, str]] = []
        self.meter = RecordingMeter()

    def send(self, url: str, key: str | None = None) -> None:
        try:
            send(url, key)
        except Exception as error:  # noqa: BLE001 - it is what we look at
            self.failed += 1
            self.printed += reports(error)

    def hear(self, sender: Any, operation: Any, error: BaseException | None, **_: Any) -> None:
        self.printed += [
            ("a signal", f"{operation!r} {operation.ticket!r} {operation.record!r}"),
            *reports(error),
        ]

    @property
    def leaks(self) -> set[str]:
        self.printed.append(("a figure", repr(self.meter)))
        for record in self.caplog.records:
            if record.name.startswith("django_idempotency"):
                self.printed += [
                    ("a log line", str(vars(record))),
                    *reports(record.exc_info[1] if record.exc_info else None),
                ]
        return {
            f"{where}: {canary}"
            for where, text in self.printed
            for canary in CANARIES
            if canary in text
        }


@pytest.fixture
def watch(
    caplog: pytest.LogCaptureFixture, settings: Settings, deferring: Deferring
) -> Iterator[Watch]:
    settings.IDEMPOTENCY = SECRETS
    caplog.set_level(logging.DEBUG)
    watch = Watch(caplog)
    heard = (
        signals.claimed,
        signals.completed,
        signals.released,
        signals.lost,
        signals.deferred,
        signals.unavailable,
    )
    for signal in heard:
        signal.connect(watch.hear)
    with installed(watch.meter):
        yield watch
    for signal in heard:
        signal.disconnect(watch.hear)
    failing.clear()


#: In order: the claim, the lock and its verdict, the response, the settle.
PHASES = [
    *(
        (ORMStore, "claim"),
        (ORMStore, "guard"),
        (Statements, "insert"),
        (Statements, "lock"),
        (rules, "read"),
    ),
    *((packing, "pack_outcome"), (Keyring, "seal"), (Statements, "settle"), (ORMStore, "settle")),
]


@pytest.mark.parametrize("url", ["/atomic/", "/lease/", "/selected/"])
def test_a_failure_in_any_phase(watch: Watch, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Of the work, of the project's hooks, and of what we do before and after."""
    for name in (
        "scope",
        "realm",
        "fingerprint",
        "keep",
        "view",
        *(["suspect"] if url == "/selected/" else []),
    ):
        failing[:] = [name]
        watch.send(url)
    failing.clear()
    for owner, name in PHASES:
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, fail)
            watch.send(url)
    assert watch.failed >= 8  # under a lease a settle that fails is tried again later
    assert watch.leaks == set()


def test_a_failure_of_a_replay(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind it stands the stored response, opened."""
    key = f"{KEY}replayed"
    watch.send("/atomic/", key)
    for name in ("authorize_replay", "on_replay"):
        failing[:] = [name]
        watch.send("/atomic/", key)
    with monkeypatch.context() as patch:
        patch.setattr(Keyring, "open", fail)
        watch.send("/atomic/", key)
    assert watch.failed == 3
    assert watch.leaks == set()


@pytest.mark.parametrize(
    "wrong",
    [
        {"ON_FAILURE": "queue"},
        {"PROFILE": "nobody's"},
        {"STORE": "elsewhere"},
        {"ENCRYPTION_KEYS": [ENCRYPTION_KEY, ENCRYPTION_KEY]},
        {"ENCRYPTION_KEYS": [ENCRYPTION_KEY[:-8]]},
    ],
    ids=str,
)
def test_settings_that_are_wrong(watch: Watch, settings: Settings, wrong: dict[str, Any]) -> None:
    """The first request with a key finds out, and nothing else of the settings is printed."""
    settings.IDEMPOTENCY = {**SECRETS, **wrong}
    watch.send("/plain/")
    assert watch.failed == 1
    assert watch.leaks == set()
