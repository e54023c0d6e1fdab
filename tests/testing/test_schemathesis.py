"""The check for schemathesis: the testproject does what it publishes, and a view that does not is
found out.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import override_settings
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from hypothesis import HealthCheck, Phase, given, settings
from ninja import Schema, Status

schemathesis = pytest.importorskip("schemathesis")
from schemathesis.core.failures import FailureGroup  # noqa: E402

from django_idempotency import OnReplay, idempotent  # noqa: E402
from django_idempotency.contrib.ninja.openapi import NinjaAPI  # noqa: E402
from django_idempotency.contrib.publishing.policies import published  # noqa: E402
from django_idempotency.core.policy import Policy  # noqa: E402
from django_idempotency.models import IdempotencyRecord  # noqa: E402
from django_idempotency.testing.schemathesis import idempotency, is_well_formed  # noqa: E402
from testproject.payments import views  # noqa: E402
from testproject.payments.models import Effect  # noqa: E402
from tests.support.dialects import DIALECTS  # noqa: E402
from tests.support.factories import TokenFactory  # noqa: E402

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
]

api = NinjaAPI(urls_namespace="checked")


class Money(Schema):
    amount: int


def shared(request: HttpRequest) -> str:
    return "client"


@api.post("/charges", response={201: Money})
@idempotent(scope=shared, required=True)
def charge(request: HttpRequest, payload: Money) -> Any:
    Effect.objects.create(label="charge")
    return Status(201, payload)


@api.post("/captures", response={201: Money})
@idempotent(
    scope=shared,
    profile=DIALECTS["paypal"],
    extensions=[OnReplay(lambda request, response: response)],
)
def capture(request: HttpRequest, payload: Money) -> Any:
    return Status(201, payload)


@api.post("/payments")
@idempotent(scope=shared, profile=DIALECTS["square"], required=True)
def payment(request: HttpRequest, payload: Money) -> Any:
    return {"amount": payload.amount}


@api.post("/drafts")
@idempotent(scope=shared, profile="draft", fingerprint="headers")
def draft(request: HttpRequest, payload: Money) -> Any:
    return {"amount": payload.amount}


@api.post("/events")
@idempotent(scope=shared, profile=DIALECTS["repeatability"])
def event(request: HttpRequest, payload: Money) -> Any:
    return {"amount": payload.amount}


@api.post("/tables")
@idempotent(scope=shared, profile=DIALECTS["iceberg"], key_format="uuid7", max_body=5)
def table(request: HttpRequest, payload: Money) -> Any:
    return {"amount": payload.amount}


@api.post("/declined", response={402: Money, 409: Money})
@idempotent(scope=shared)
def decline(request: HttpRequest, payload: Money) -> Any:
    return Status(402 if payload.amount % 2 else 409, payload)


urlpatterns = [
    path("ninja/", api.urls),
    path("api/charges/", views.ChargeViewSet.as_view({"post": "create"})),
]


def schema_of_rest() -> dict[str, Any]:
    from drf_spectacular.generators import SchemaGenerator

    ours = "django_idempotency.contrib.publishing.spectacular.AutoSchema"
    with override_settings(REST_FRAMEWORK={"DEFAULT_SCHEMA_CLASS": ours}):
        found: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)
    return found


def checked(
    document: dict[str, Any], address: str, app: Any = None, headers: dict[str, str] | None = None
) -> int:
    """Run the check over a few cases of an operation, the same each time.

    Return how many responses were a success.
    """
    schema = schemathesis.openapi.from_dict(json.loads(json.dumps(document)))
    schema.app = app or get_wsgi_application()
    accepted = 0

    @settings(
        max_examples=4,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=schema[address]["POST"].as_strategy())
    def run(case: Any) -> None:
        nonlocal accepted
        response = case.call(headers=headers)
        accepted += response.status_code < 300
        case.validate_response(response, checks=[idempotency], headers=headers)

    run()
    return accepted


@pytest.mark.parametrize(
    "address",
    [
        "/ninja/charges",
        "/ninja/captures",
        "/ninja/payments",
        "/ninja/drafts",
        "/ninja/events",
        "/ninja/tables",
    ],
)
def test_what_ninja_publishes_is_what_happens(address: str) -> None:
    """In each profile, with its own header or member, statuses and replays."""
    assert checked(dict(api.get_openapi_schema()), address)
    assert IdempotencyRecord.objects.exists()


def test_a_remembered_refusal() -> None:
    """402 is replayed, 409 runs again: as published."""
    checked(dict(api.get_openapi_schema()), "/ninja/declined")
    assert {record.response_status for record in IdempotencyRecord.objects.all()} >= {402}


@pytest.mark.skipif(
    sys.version_info < (3, 11) and "PYTEST_XDIST_WORKER" in os.environ,
    reason="a worker of pytest-xdist crashes in it on Python 3.10, where it passes alone",
)
def test_what_the_testproject_publishes_is_what_happens(user: User) -> None:
    """Its charges, with the token of a user: retries are replays, and each key has one effect."""
    headers = {"Authorization": f"Token {TokenFactory(user=user).key}"}
    assert checked(schema_of_rest(), "/api/charges/", headers=headers)
    counts = [
        Effect.objects.filter(idempotency_key=key).count()
        for key in IdempotencyRecord.objects.values_list("key", flat=True)
    ]
    assert set(counts) <= {0, 1}


def test_credentials_that_are_refused_say_nothing() -> None:
    """Without a token nothing comes as far as the guard."""
    assert checked(schema_of_rest(), "/api/charges/") == 0


# -------------------------------------------------------------------------------------------- liars


def document_of(policy: Policy, **changed: Any) -> dict[str, Any]:
    """Return a schema that publishes a policy, perhaps with something else in it."""
    body = {
        "content": {
            "application/json": {
                "schema": {"type": "object", "properties": {"amount": {"type": "integer"}}}
            }
        }
    }
    operation = {"requestBody": body, "responses": {"201": {"description": ""}}}
    terms = {**published(policy), **changed}
    return {
        "openapi": "3.1.0",
        "info": {"title": "", "version": ""},
        "paths": {"/lying": {"post": {**operation, "x-idempotency": terms}}},
    }


def app_of(view: Callable[[HttpRequest], Any]) -> Any:
    """Return an application with one view, whatever its path."""

    def application(environ: Any, start_response: Any) -> Any:
        with override_settings(ROOT_URLCONF=(path("lying", csrf_exempt(view)),)):
            return get_wsgi_application()(environ, start_response)

    return application


def paying(**terms: Any) -> Callable[[HttpRequest], Any]:
    """Return a guarded view with other terms than are published."""

    def pay(request: HttpRequest) -> HttpResponse:
        return JsonResponse({"run": Effect.objects.create(label="pay").pk}, status=201)

    return csrf_exempt(idempotent(scope=shared, **terms)(pay))


def unguarded(request: HttpRequest) -> HttpResponse:
    return JsonResponse({}, status=201)


REQUIRED = Policy(required=True, scope=shared)
LIARS: dict[str, tuple[Callable[[HttpRequest], Any], Policy, dict[str, Any], str]] = {
    "another status for another request": (
        paying(profile="stripe"),
        Policy(scope=shared),
        {},
        "another request .* gets 400",
    ),
    "replays are not marked": (
        unguarded,
        Policy(scope=shared),
        {},
        "a retry of 201 is not a replay",
    ),
    "the key is not required": (
        paying(),
        REQUIRED,
        {},
        "a request without the required key gets 201",
    ),
    "it is another header": (
        paying(profile=DIALECTS["paypal"]),
        Policy(scope=shared),
        {},
        "a retry of 201 is not a replay",
    ),
    "longer keys are taken": (
        paying(),
        Policy(scope=shared, profile=DIALECTS["adyen"]),
        {},
        "a malformed key gets 201",
    ),
    "another status for a replay": (
        paying(),
        Policy(scope=shared),
        {
            "replays": {
                "marker": {"name": "Idempotent-Replayed", "value": "true"},
                "statuses": {"201": 200},
            }
        },
        "a replay of 201 has 201, not 200",
    ),
    "another body": (
        paying(extensions=[OnReplay(lambda request, response: JsonResponse({}, status=201))]),
        Policy(scope=shared),
        {},
        "a replay has another body",
    ),
    "it is not remembered": (
        paying(),
        Policy(scope=shared),
        {"remembered": {"statuses": ["4XX"], "except": [], "chosen": False}},
        "201 is not remembered, but",
    ),
}


@pytest.mark.parametrize("name", LIARS)
def test_a_liar_is_found_out(name: str) -> None:
    """What differs from what is published fails the check, with a sentence that says what."""
    view, policy, changed, complaint = LIARS[name]
    with pytest.raises(FailureGroup) as caught:
        checked(document_of(policy, **changed), "/lying", app_of(view))
    (failure,) = caught.value.exceptions
    assert re.search(complaint, str(failure))


def test_an_honest_one_passes() -> None:
    """The same application, with what it does."""
    checked(document_of(REQUIRED), "/lying", app_of(paying(required=True)))
    assert Effect.objects.exists()


def test_an_operation_without_a_policy() -> None:
    """It is left alone."""
    document = document_of(REQUIRED)
    del document["paths"]["/lying"]["post"]["x-idempotency"]
    assert checked(document, "/lying", app_of(unguarded))


@pytest.mark.parametrize(
    ("address", "sent"),
    [("/ninja/charges", "1"), ("/ninja/payments", "1"), ("/ninja/drafts", '"1"')],
)
def test_each_generated_request_has_a_key_of_its_own(address: str, sent: str) -> None:
    """The generator repeats its keys with other requests: each is replaced, where the profile has
    it.
    """
    schema = schemathesis.openapi.from_dict(json.loads(json.dumps(dict(api.get_openapi_schema()))))
    schema.app = get_wsgi_application()
    operation = schema[address]["POST"]
    statuses = []
    for amount in range(3):
        body = {
            "amount": amount,
            **({"idempotency_key": sent} if address == "/ninja/payments" else {}),
        }
        headers = {} if address == "/ninja/payments" else {"Idempotency-Key": sent}
        statuses.append(
            operation.Case(body=body, headers=headers, media_type="application/json")
            .call()
            .status_code
        )
    assert set(statuses) <= {200, 201}
    assert IdempotencyRecord.objects.count() == 3
    assert not IdempotencyRecord.objects.filter(key="1").exists()


@pytest.mark.parametrize(
    ("sent", "terms", "expected"),
    [
        ("a", Policy(), True),
        ("a b", Policy(), True),
        ("", Policy(), False),
        (None, Policy(), False),
        (5, Policy(), False),
        ("a,b", Policy(), False),
        ("\x7f", Policy(), False),
        ("a" * 65, Policy(profile=DIALECTS["adyen"]), False),
        ("a", Policy(profile="draft"), False),
        ('"a"', Policy(profile="draft"), True),
        ('""', Policy(profile="draft"), False),
        ("a", Policy(key_format="uuid"), False),
        ("8e03978e-40d5-43e8-bc93-6894a57f9324", Policy(key_format="uuid4"), True),
        ("8e03978e-40d5-43e8-bc93-6894a57f9324", Policy(key_format="uuid7"), False),
        ("order-1", Policy(key_format="order-[0-9]+"), True),
        ("1", Policy(key_format="order-[0-9]+"), False),
        ("a,b", Policy(profile=DIALECTS["square"]), True),
    ],
)
def test_what_is_a_key(sent: Any, terms: Policy, expected: bool) -> None:
    """A malformed key stays: that is what the generator tests."""
    assert is_well_formed(sent, published(terms)) is expected
