"""What is said of endpoints of django-modern-rest without a request: checks, routes and OpenAPI."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import call_command
from django.test import Client
from pytest_django import Settings

pytest.importorskip("dmr")

from openapi_spec_validator import validate

from django_idempotency.checks.routes import check_routes

from ...checks.conftest import hints

pytestmark = pytest.mark.urls("tests.contrib.modern_rest.api")
OURS = "django_idempotency.middleware.IdempotencyMiddleware"


def test_what_the_middleware_leaves_unguarded(settings: Settings) -> None:
    """A controller with an endpoint that has neither a guard nor an exemption; an error if keys are
    required.
    """
    settings.MIDDLEWARE = []
    assert list(check_routes()) == []
    settings.MIDDLEWARE = [OURS]
    messages = [message.msg for message in check_routes() if (message.id or "").endswith("W084")]
    every = ("Charges", "More", "AsyncCharges", "Bare")
    assert [name for name in every if any(f"api.{name} " in text for text in messages)] == [
        "More",
        "Bare",
    ]
    settings.IDEMPOTENCY = {"REQUIRED": True}
    found = hints(check_routes())
    assert "@idempotent() on each of its methods" in found["E082"]
    assert "W084" not in found


def test_the_routes(settings: Settings) -> None:
    """Each method with its guard."""
    settings.MIDDLEWARE = [OURS]
    written = StringIO()
    call_command("idempotency_routes", "--json", stdout=written)
    found = {
        (row["path"], method): (row["guard"], row["terms"].get("guarantee"))
        for row in json.loads(written.getvalue())
        for method in row["methods"]
    }
    assert found["/api/charges/", "POST"] == ("decorator", "atomic")
    assert found["/api/charges/", "PUT"] == ("exempt", None)
    assert found["/api/async/", "POST"] == ("decorator", "lease")
    assert found["/api/more/", "PATCH"][0] == found["/api/bare/", "POST"][0] == "nothing"


def test_openapi() -> None:
    """A valid document that names the header, its responses in the controller's format, and the
    policy.
    """
    document = Client().get("/openapi.json").json()
    validate(document)
    charge = document["paths"]["/api/charges/"]["post"]
    (key,) = [each for each in charge["parameters"] if each["name"] == "Idempotency-Key"]
    assert (key["in"], key["required"], key["schema"]["type"]) == ("header", True, "string")
    assert {"201", "400", "402", "409", "422"} <= charge["responses"].keys()
    assert "in-progress" in charge["responses"]["409"]["description"]
    assert charge["responses"]["409"]["content"] == charge["responses"]["402"]["content"]
    assert charge["x-idempotency"]["required"] is True
    assert "x-idempotency" not in document["paths"]["/api/bare/"]["post"]
