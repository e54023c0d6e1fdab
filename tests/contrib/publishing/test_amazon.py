"""Amazon API Gateway's validators: for operations whose key is a required parameter, and no
others.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.test import override_settings
from openapi_spec_validator import validate

pytest.importorskip("drf_spectacular")

from drf_spectacular.settings import patched_settings

from django_idempotency.contrib.publishing.amazon import (
    NAME,
    VALIDATOR,
    VALIDATORS,
    request_validators,
)

from .test_schema import generated, made

__all__ = ["made"]  # a fixture

HOOK = "django_idempotency.contrib.publishing.amazon.request_validators"


def test_the_hook(made: dict[str, Any]) -> None:
    """Named by the settings of drf-spectacular it gives each of them the validator, and the
    parameter in full.
    """
    with (
        override_settings(ROOT_URLCONF="tests.contrib.publishing.urls"),
        patched_settings({"POSTPROCESSING_HOOKS": [HOOK]}),
    ):
        schema = generated()
    validate(schema)
    validated = {
        path: each["post"].get(VALIDATOR)
        for path, each in schema["paths"].items()
        if "post" in each
    }
    required = {"/charges/", "/issued/", "/patterned/"}
    assert validated == {path: NAME if path in required else None for path in validated}
    assert schema[VALIDATORS] == {
        "params-only": {"validateRequestBody": False, "validateRequestParameters": True}
    }
    assert VALIDATOR not in schema["paths"]["/charges/"]["get"]
    (key,) = [
        each
        for each in schema["paths"]["/charges/"]["post"]["parameters"]
        if each.get("in") == "header"
    ]
    assert (key["name"], key["required"]) == ("Idempotency-Key", True)
    assert VALIDATORS not in made  # without the hook


@pytest.mark.parametrize(
    ("terms", "validator"),
    [
        ({"carrier": {"in": "header"}, "required": True, "derived": False}, NAME),
        ({"carrier": {"in": "query"}, "required": True, "derived": False}, NAME),
        ({"carrier": {"in": "body"}, "required": True, "derived": False}, None),
        # The service may find one itself.
        (
            {"carrier": {"in": "header"}, "required": True, "derived": True},
            None,
        ),
        ({"carrier": {"in": "header"}, "derived": False}, None),  # it depends
    ],
)
def test_which_operations(terms: dict[str, Any], validator: str | None) -> None:
    """A gateway sees headers and the query."""
    schema = {
        "paths": {"/a": {"summary": "A path.", "post": {"x-idempotency": terms, "parameters": []}}}
    }
    assert request_validators(schema)["paths"]["/a"]["post"].get(VALIDATOR) == validator


def test_what_a_project_says_itself() -> None:
    """Its validator stays, and so does what it has called by our name."""
    terms = {"carrier": {"in": "header"}, "required": True, "derived": False}
    operation = {"x-idempotency": terms, "parameters": [], VALIDATOR: "all"}
    own = {NAME: {"validateRequestBody": True, "validateRequestParameters": True}}
    schema = request_validators({"paths": {"/a": {"post": operation}}, VALIDATORS: dict(own)})
    assert (operation[VALIDATOR], schema[VALIDATORS]) == ("all", own)
