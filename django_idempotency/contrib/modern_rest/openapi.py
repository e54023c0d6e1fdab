"""What OpenAPI says of a guarded endpoint: the package asks the endpoint itself."""

from __future__ import annotations

import dataclasses
from http import HTTPStatus
from itertools import groupby
from typing import Any

from dmr import Controller
from dmr.endpoint import Endpoint
from dmr.metadata import ResponseSpec
from dmr.openapi.objects import Operation, Parameter, Schema

from ... import Policy, conf
from ..publishing.policies import problems_of, published
from ..publishing.schema import parameters

#: JSON Schema → the names of the package's class.
_NAMES = {"minLength": "min_length", "maxLength": "max_length"}


def describe(
    operation: Operation,
    endpoint: Endpoint,
    policy: Policy,
    cls: type[Controller[Any]],
    context: Any,
) -> Operation:
    """Return an operation with its key, the responses to it, and the policy as `x-idempotency`.

    Nothing is replaced.
    """
    terms = published(policy)
    profile = conf.resolve(policy).profile
    known = [
        {"in": each.param_in, "name": each.name}
        for each in operation.parameters or []
        if isinstance(each, Parameter)
    ]
    added = parameters(known, terms, profile, lambda _, __, component: component)[len(known) :]
    specs: dict[HTTPStatus, ResponseSpec] = {}
    possible = sorted(problems_of(policy), key=profile.status_of)
    for code, of_status in groupby(
        possible, key=lambda problem: HTTPStatus(profile.status_of(problem))
    ):
        said = ", ".join(f"`{problem.code}`: {problem.title}" for problem in of_status)
        specs[code] = ResponseSpec(cls.error_model, status_code=code, description=said)
    metadata = dataclasses.replace(
        endpoint.metadata, responses={**specs, **endpoint.metadata.responses}
    )
    return dataclasses.replace(
        operation,
        parameters=[*(operation.parameters or []), *map(_parameter, added)],
        responses=context.generators.response(metadata, cls),
        x_extensions={**(operation.x_extensions or {}), "x-idempotency": terms},
    )


def _parameter(found: dict[str, Any]) -> Parameter:
    schema = Schema(
        **{
            _NAMES.get(name, name): value
            for name, value in found["schema"].items()
            if not name.startswith("x-")
        }
    )
    others = {
        name: found[name]
        for name in ("name", "required", "description", "example")
        if name in found
    }
    return Parameter(param_in=found["in"], schema=schema, **others)
