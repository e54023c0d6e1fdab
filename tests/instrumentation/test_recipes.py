"""The recipes of docs/how-to/metrics.md run as they are written there."""

from __future__ import annotations

import json
import logging
import logging.config
from collections.abc import Iterator
from typing import Any

import pytest
import sentry_sdk
import structlog
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory
from django_structlog.signals import bind_extra_request_finished_metadata
from sentry_sdk.integrations.logging import LoggingIntegration
from sentry_sdk.transport import Transport

from ..docs.pages import DOCS, blocks
from ..entry_points.conftest import CHARGE, KEY

pytestmark = pytest.mark.django_db(transaction=True)


def recipe(name: str, given: dict[str, Any] | None = None) -> dict[str, Any]:
    """Run the block of the page that has this text, and return its names."""
    (code,) = [block.code for block in blocks(DOCS / "how-to/metrics.md") if name in block.code]
    namespace = given or {}
    exec(compile(code, name, "exec"), namespace)
    return namespace


@pytest.fixture
def quiet() -> Iterator[None]:
    """Give the loggers back as they were."""
    logger = logging.getLogger("django_idempotency")
    before = (logger.handlers[:], logger.level, logger.propagate)
    yield
    logger.handlers[:], logger.level, logger.propagate = before


def post(user: User, body: Any) -> Any:
    client = Client(raise_request_exception=False)
    client.force_login(user)
    return client.post(
        "/plain/charges/", body, "application/json", headers={"Idempotency-Key": KEY}
    )


def test_structlog(user: User, quiet: None, capsys: pytest.CaptureFixture[str]) -> None:
    """A line of JSON with the facts, and no part of the key."""
    post(user, CHARGE)
    names = recipe("LOGGING = {", recipe("def idempotency_facts"))
    logging.config.dictConfig(names["LOGGING"])
    post(user, {"amount": 1, "currency": "inr"})
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    logged = json.loads(line)
    assert logged["level"] == "warning"
    assert (logged["idempotency_event"], logged["idempotency_route"]) == (
        "mismatched",
        "plain/charges/",
    )
    assert KEY[:8] not in line


def test_django_structlog() -> None:
    """The line about the finished request has the status of its key."""
    receiver = recipe("def bind_idempotency")["bind_idempotency"]
    request: HttpRequest = RequestFactory().post("/")
    response = HttpResponse(headers={"Idempotency-Status": "replayed"})
    with structlog.contextvars.bound_contextvars():
        bind_extra_request_finished_metadata.send(
            sender=None, request=request, logger=None, response=response, log_kwargs={}
        )
        assert structlog.contextvars.get_contextvars() == {"idempotency_status": "replayed"}
        structlog.contextvars.clear_contextvars()
    bind_extra_request_finished_metadata.disconnect(receiver)


class Sent(Transport):
    """Keeps what would be sent."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Any] = []

    def capture_envelope(self, envelope: Any) -> None:
        if (event := envelope.get_event()) is not None:
            self.events.append(event)


def test_sentry(user: User) -> None:
    """An error is an issue of its event and route, under the key's hash; a refusal is none."""
    sent, names = Sent(), recipe("def before_send")
    # No other integration: they patch Django and Celery for the rest of the process.
    only_logging = {"default_integrations": False, "auto_enabling_integrations": False}
    options = {
        "dsn": "http://key@127.0.0.1:1/1",
        "transport": sent,
        "before_send": names["before_send"],
        **only_logging,
    }
    client = sentry_sdk.Client(integrations=[LoggingIntegration()], **options)
    with sentry_sdk.isolation_scope() as scope:
        scope.set_client(client)
        post(user, CHARGE)
        post(user, {"amount": 1, "currency": "inr"})
        assert sent.events == []
        logger, facts = (
            logging.getLogger("django_idempotency"),
            {"event": "lost", "route": "a/", "key_hash": "0a"},
        )
        logger.error("Lost.", extra={"idempotency": facts})
        (event,) = sent.events
        assert event["fingerprint"] == ["django_idempotency", "lost", "a/"]
        assert event["tags"]["idempotency_key_hash"] == "0a"
