"""Lets Amazon API Gateway refuse a request without its key: extensions of the schema that it
imports.
"""

from __future__ import annotations

from typing import Any, Final

from .schema import is_required

#: Of an operation, the name of its validator; of the API, what each validator looks at.
VALIDATOR: Final = "x-amazon-apigateway-request-validator"
VALIDATORS: Final = "x-amazon-apigateway-request-validators"
NAME: Final = "params-only"


def request_validators(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Return an OpenAPI schema with a validator for each operation whose key is a required header
    or query parameter.

    It looks at presence, not at a format. Operations keep a validator of their own; references to
    parameters are replaced by what they refer to. A hook of drf-spectacular, and a function of any
    schema that we have described.
    """
    for path in result.get("paths", {}).values():
        for operation in path.values():
            terms = operation.get("x-idempotency") if isinstance(operation, dict) else None
            if terms and terms["carrier"]["in"] != "body" and is_required(terms):
                operation["parameters"] = [
                    _resolved(each, result) for each in operation["parameters"]
                ]
                operation.setdefault(VALIDATOR, NAME)
                known = result.setdefault(VALIDATORS, {})
                known.setdefault(
                    NAME, {"validateRequestBody": False, "validateRequestParameters": True}
                )
    return result


def _resolved(parameter: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    kind, _, name = parameter.get("$ref", "").removeprefix("#/components/").partition("/")
    return dict(schema["components"][kind][name]) if kind else parameter
