"""The OpenAPI schema of guarded views: what it adds, and what it leaves alone."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any
from uuid import UUID

import pytest
from django.test import override_settings
from django.utils.http import http_date
from openapi_spec_validator import validate

pytest.importorskip("drf_spectacular")

from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.generators import SchemaGenerator

from django_idempotency import Policy
from django_idempotency.contrib.publishing.schema import PROBLEM, describe
from django_idempotency.core.key_formats import ISSUED_SAMPLE
from django_idempotency.errors import KeyMalformed
from tests.http.test_keys import MALFORMED, WELL_FORMED
from tests.support.dialects import DIALECTS

pytestmark = pytest.mark.urls("tests.contrib.publishing.urls")

OURS = "django_idempotency.contrib.publishing.spectacular.AutoSchema"
THEIRS = "drf_spectacular.openapi.AutoSchema"


def generated(schema_class: str = OURS) -> dict[str, Any]:
    from rest_framework.settings import api_settings

    known = api_settings.DEFAULT_SCHEMA_CLASS
    with override_settings(REST_FRAMEWORK={"DEFAULT_SCHEMA_CLASS": schema_class}):
        schema: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)
    assert known is not None
    return schema


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    with override_settings(ROOT_URLCONF="tests.contrib.publishing.urls", MIDDLEWARE=[]):
        return generated()


def operation(schema: dict[str, Any], path: str, method: str = "post") -> dict[str, Any]:
    found: dict[str, Any] = deepcopy(schema["paths"][path][method])
    return found


def parameter(schema: dict[str, Any], path: str) -> dict[str, Any]:
    (reference,) = [
        each["$ref"] for each in operation(schema, path)["parameters"] if "$ref" in each
    ]
    found: dict[str, Any] = schema["components"]["parameters"][reference.rpartition("/")[2]]
    return found


def test_it_is_valid(made: dict[str, Any]) -> None:
    """A validator accepts it, and the generator has no warning about our part."""
    validate(made)
    assert not any("dempoten" in message for message in GENERATOR_STATS._error_cache)


def test_the_key_is_a_parameter(made: dict[str, Any]) -> None:
    """It is shared by reference, with its format, and required where the policy says so."""
    required, optional = parameter(made, "/charges/"), parameter(made, "/documented/{id}/")
    assert (required["name"], required["in"], required["required"]) == (
        "Idempotency-Key",
        "header",
        True,
    )
    assert (
        required["schema"].items() >= {"type": "string", "minLength": 1, "maxLength": 255}.items()
    )
    assert optional["required"] is False


def test_formats(made: dict[str, Any]) -> None:
    """A format that the policy demands is in the schema, with the refusals that come with it."""
    found = parameter(made, "/formatted/")
    assert found["schema"] == {"type": "string", "format": "uuid", "x-uuid-version": 7}
    assert UUID(found["example"]).version == 7
    assert set(operation(made, "/formatted/")["x-idempotency"]["problems"]) >= {
        "key-expired",
        "key-ahead",
    }
    (issued,) = operation(made, "/issued/")["parameters"]
    assert re.fullmatch(issued["schema"]["pattern"], ISSUED_SAMPLE)
    assert (issued["schema"]["x-issued"], issued["schema"]["maxLength"]) == (
        True,
        len(ISSUED_SAMPLE),
    )
    assert "key-foreign" in operation(made, "/issued/")["x-idempotency"]["problems"]
    (own,) = operation(made, "/patterned/")["parameters"]
    assert (own["required"], own["schema"]["pattern"]) == (True, "^(?:order-[0-9]+)$")


def test_the_policy_is_published(made: dict[str, Any]) -> None:
    """`x-idempotency` says what a client has to know."""
    terms = operation(made, "/charges/")["x-idempotency"]
    assert (terms["required"], terms["lifetime"], terms["guarantee"]) == (True, "P7D", "atomic")
    assert terms["remembered"]["statuses"] == ["2XX", "3XX", "4XX"]
    assert 409 in terms["remembered"]["except"]
    decorated = operation(made, "/decorated/")["x-idempotency"]
    assert (decorated["lifetime"], 409 in decorated["remembered"]["except"]) == ("PT1H", False)


def test_a_schema_may_be_made_again() -> None:
    """The states are in each one: drf-spectacular moves an enum into a component of its own, in
    place.
    """
    with override_settings(ROOT_URLCONF="tests.contrib.publishing.urls"):
        made = [generated(OURS)["components"]["schemas"] for _ in range(2)]
    assert made[0] == made[1]
    assert "'running', 'completed', 'held'" in str(made[1])


def test_our_responses_are_added(made: dict[str, Any]) -> None:
    """Each refusal has its status, its code and an example; a success says how to tell a replay."""
    responses = operation(made, "/charges/")["responses"]
    assert set(responses) == {"201", "400", "403", "409", "413", "422", "500", "503"}
    examples = responses["400"]["content"]["application/problem+json"]["examples"]
    assert examples["key-missing"]["value"]["status"] == 400
    assert set(examples) == {"key-missing", "key-malformed", "scope-required", "body-incomplete"}
    assert "Idempotent-Replayed" in responses["201"]["headers"]
    assert (
        "key-missing" not in operation(made, "/documented/{id}/")["responses"]["400"]["description"]
    )


def test_nothing_else_changes(made: dict[str, Any]) -> None:
    """Unguarded operations are byte for byte what they were, and of guarded ones all that they said
    themselves.
    """
    with override_settings(ROOT_URLCONF="tests.contrib.publishing.urls"):
        before = generated(THEIRS)
    for path, methods in before["paths"].items():
        for method, theirs in methods.items():
            if "x-idempotency" in theirs:
                continue  # @api_view has bound its schema class when it was imported
            ours = operation(made, path, method)
            if "x-idempotency" not in ours:
                assert ours == theirs
                continue
            assert [
                each
                for each in ours.pop("parameters")
                if "$ref" not in each and each["name"] != "Idempotency-Key"
            ] == theirs.pop("parameters", [])
            known = theirs.pop("responses")
            assert {code: ours["responses"][code]["description"] for code in known} == {
                code: response["description"] for code, response in known.items()
            }
            assert {name: ours[name] for name in theirs} == theirs
    guarded = {
        (path, method)
        for path, methods in made["paths"].items()
        for method, its in methods.items()
        if "x-idempotency" in its
    }
    assert guarded == {
        ("/charges/", "post"),
        ("/documented/{id}/", "post"),
        ("/choosing/", "post"),
        ("/decorated/", "post"),
        ("/formatted/", "post"),
        ("/issued/", "post"),
        ("/patterned/", "post"),
    }


def test_what_the_middleware_guards() -> None:
    """With the middleware, each route without a guard of its own has that of the settings."""
    with override_settings(ROOT_URLCONF="tests.contrib.publishing.urls", IDEMPOTENCY={"TTL": 60}):
        terms = operation(generated(), "/bare/")["x-idempotency"]
    assert (terms["required"], terms["lifetime"]) == (False, "PT1M")


def test_descriptions_are_peoples_own() -> None:
    """No sentence of this package becomes the description of somebody's view."""
    with override_settings(ROOT_URLCONF="tests.contrib.publishing.urls"):
        for schema in (generated(), generated(THEIRS)):
            assert operation(schema, "/documented/{id}/")["description"] == "A person's own words."
            assert "description" not in operation(schema, "/choosing/")
            assert "description" not in operation(schema, "/charges/")


@pytest.mark.parametrize(
    ("name", "carrier", "sent", "statuses"),
    [
        (
            "stripe",
            {"in": "header", "name": "Idempotency-Key"},
            ["StripeIdempotencyKey"],
            {"400", "409"},
        ),
        (
            "repeatability",
            {"in": "header", "name": "Repeatability-Request-ID"},
            ["RepeatabilityIdempotencyKey", "RepeatabilityFirstSent"],
            {"400", "409", "412"},
        ),
        ("square", {"in": "body", "name": "idempotency_key"}, [], {"400", "409"}),
        (
            "adyen",
            {"in": "header", "name": "Idempotency-Key"},
            ["AdyenIdempotencyKey"],
            {"400", "422"},
        ),
    ],
)
def test_a_profile(name: str, carrier: dict[str, str], sent: list[str], statuses: set[str]) -> None:
    """What is published is the profile's: where the key is, its statuses, and bodies as its clients
    read them.
    """
    with override_settings(
        ROOT_URLCONF="tests.contrib.publishing.urls", IDEMPOTENCY={"PROFILE": DIALECTS[name]}
    ):
        schema = generated()
    validate(schema)
    made = operation(schema, "/documented/{id}/")
    assert made["x-idempotency"]["carrier"] == carrier
    references = [each["$ref"].rpartition("/")[2] for each in made["parameters"] if "$ref" in each]
    assert references == sent
    assert statuses <= set(made["responses"])
    assert (
        "422" in made["responses"] or "request-mismatch" in made["responses"]["400"]["description"]
    )
    assert list(made["responses"]["400"]["content"]) == ["application/json"]


def test_what_a_generator_changes_is_its_own(made: dict[str, Any]) -> None:
    """drf-spectacular moves enums out of components in place: the next schema, and ninja's, are
    whole all the same.
    """
    assert (
        "allOf"
        in made["components"]["schemas"]["IdempotencyProblem"]["properties"]["operation_state"]
    )
    assert "enum" in PROBLEM["properties"]["operation_state"]  # type: ignore[index]


@pytest.mark.parametrize(
    "name", [name for name, profile in DIALECTS.items() if profile.pattern is None]
)
def test_the_schema_takes_what_the_profile_takes(name: str) -> None:
    """A key that matches the published pattern is read, and one that does not is malformed: clients
    can check it first.
    """
    profile = DIALECTS[name]
    operation = {"requestBody": {"content": {"application/json": {"schema": {"type": "object"}}}}}
    made = describe(
        operation, Policy(profile=profile, required=True), lambda kind, name, component: component
    )
    if profile.carrier == "body":
        parts = made["requestBody"]["content"]["application/json"]["schema"]["allOf"]
        schema = parts[1]["properties"][profile.field]
    else:
        schema = made["parameters"][0]["schema"]
    for sent in (*MALFORMED.values(), *WELL_FORMED, "a,b", '"a b"', "a", '"'):
        if sent != sent.strip() or (profile.spelling == "quoted" and ";" in sent):
            continue  # HTTP takes spaces off the ends of a header; and nothing defines parameters
        if " " in sent and profile.client_field:
            continue  # a space ends the client's name
        fits = re.fullmatch(schema["pattern"], sent) and len(sent) <= schema.get("maxLength", 257)
        try:
            taken = bool(profile.read_key(sent, {"HTTP_REPEATABILITY_FIRST_SENT": http_date()}))
        except KeyMalformed:
            taken = False
        # In quotes, or escaped: longer than the key.
        if not (taken and len(sent) > profile.max_length):
            assert bool(fits) is taken, ascii(sent)
