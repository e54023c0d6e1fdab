"""The schema of guarded operations of django-ninja: what it adds, and what it leaves alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client, override_settings
from django.test.utils import override_script_prefix
from openapi_spec_validator import validate

pytest.importorskip("ninja")

from django.urls import path
from ninja import NinjaAPI, Router, Schema
from ninja.security import HttpBearer

from django_idempotency import idempotency_exempt, idempotent
from django_idempotency.contrib.dialects import Square
from django_idempotency.contrib.ninja.openapi import IdempotencySchemaMixin
from django_idempotency.contrib.ninja.openapi import NinjaAPI as OurAPI
from django_idempotency.contrib.observe import OBSERVE
from django_idempotency.contrib.publishing.views import policies
from django_idempotency.errors import Problem

pytestmark = pytest.mark.urls(__name__)


class ChargeIn(Schema):
    amount: int


class ChargeOut(Schema):
    id: int


class Bearer(HttpBearer):
    def authenticate(self, request: Any, token: str) -> str:
        return token


class OwnAPI(IdempotencySchemaMixin, NinjaAPI):
    """A project's own API class."""


def with_operations(api: NinjaAPI) -> NinjaAPI:
    router = Router(auth=Bearer())

    @api.post("/charges", response={201: ChargeOut})
    @idempotent(required=True, ttl=3600)
    def create_charge(request: Any, payload: ChargeIn) -> Any: ...

    @api.put("/charges/{int:charge_id}", response={200: ChargeOut, 409: ChargeIn})
    @idempotent()
    def replace_charge(request: Any, charge_id: int, payload: ChargeIn) -> Any: ...

    @api.get("/charges/{int:charge_id}", response=ChargeOut)
    def get_charge(request: Any, charge_id: int) -> Any: ...

    @api.post("/square", response=ChargeOut)
    @idempotent(profile=Square(), required=True)
    def square(request: Any, payload: ChargeIn) -> Any: ...

    @api.post("/unguarded", response=ChargeOut)
    @idempotency_exempt
    def unguarded(request: Any, payload: ChargeIn) -> Any: ...

    @api.post("/observed", response=ChargeOut)
    @idempotent(mode=OBSERVE)
    def observed(request: Any, payload: ChargeIn) -> Any: ...

    @router.post("/refunds", response=ChargeOut)
    @idempotent(guarantee="lease")
    async def refund(request: Any, payload: ChargeIn) -> Any: ...

    api.add_router("/v1", router)
    return api


theirs = with_operations(NinjaAPI(urls_namespace="theirs"))
ours = with_operations(OurAPI(urls_namespace="ours"))
handled = with_operations(OwnAPI(urls_namespace="handled"))


@handled.exception_handler(Problem)
def problem(request: Any, error: Problem) -> Any:
    return handled.create_response(request, {"error": error.code}, status=error.status)


urlpatterns = [
    path("theirs/", theirs.urls),
    path("api/", ours.urls),
    path("handled/", handled.urls),
]
GUARDED = {
    ("/api/charges", "post"),
    ("/api/charges/{charge_id}", "put"),
    ("/api/square", "post"),
    ("/api/v1/refunds", "post"),
}


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    """Return the document that a client gets."""
    with override_settings(ROOT_URLCONF=__name__, MIDDLEWARE=[]):
        found: dict[str, Any] = json.loads(Client().get("/api/openapi.json").content)
    return found


def schema_of(api: NinjaAPI) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(api.get_openapi_schema()))
    return found


def test_it_is_valid(made: dict[str, Any]) -> None:
    """A validator accepts it, with the project's own errors, too."""
    validate(made)
    validate(schema_of(handled))


def test_the_guarded_operations(made: dict[str, Any]) -> None:
    """They have the policy that the page has for the same route, and no others have one."""
    found = {
        (name, method): operation["x-idempotency"]
        for name, methods in made["paths"].items()
        for method, operation in methods.items()
        if "x-idempotency" in operation
    }
    assert set(found) == GUARDED
    published = {(each["path"], each["method"].lower()): each for each in policies()}
    for place, terms in found.items():
        assert terms == {name: published[place][name] for name in terms}
        assert made["paths"][place[0]][place[1]]["x-fern-idempotent"] is True


def test_the_key_is_a_parameter(made: dict[str, Any]) -> None:
    """One component for all that share it, required where the policy says so, beside the
    operation's own parameters.
    """
    paths, components = made["paths"], made["components"]["parameters"]
    (reference,) = paths["/api/charges"]["post"]["parameters"]
    required = components[reference["$ref"].rpartition("/")[2]]
    assert (required["name"], required["in"], required["required"]) == (
        "Idempotency-Key",
        "header",
        True,
    )
    own, optional = paths["/api/charges/{charge_id}"]["put"]["parameters"]
    assert own["name"] == "charge_id"
    assert components[optional["$ref"].rpartition("/")[2]]["required"] is False
    assert paths["/api/v1/refunds"]["post"]["parameters"] == [optional]


def test_a_key_in_the_body(made: dict[str, Any]) -> None:
    """It is a member of the body beside those of the operation, with its length."""
    operation = made["paths"]["/api/square"]["post"]
    assert operation["parameters"] == []
    theirs, key = operation["requestBody"]["content"]["application/json"]["schema"]["allOf"]
    assert theirs == {"$ref": "#/components/schemas/ChargeIn"}
    assert (key["required"], key["properties"]["idempotency_key"]["maxLength"]) == (
        ["idempotency_key"],
        45,
    )
    assert "idempotency_key" not in made["components"]["schemas"]["ChargeIn"]["properties"]


def test_our_responses_are_added_where_there_is_none(made: dict[str, Any]) -> None:
    """Each refusal has its status and example; a response of the operation's own stays as it is."""
    created = made["paths"]["/api/charges"]["post"]["responses"]
    assert set(created) >= {"201", "400", "409", "422"}
    assert set(created["400"]["content"]["application/problem+json"]["examples"]) >= {
        "key-missing",
        "key-malformed",
    }
    assert "Idempotent-Replayed" in created["201"]["headers"]
    assert "content" in created["201"]
    conflict = made["paths"]["/api/charges/{charge_id}"]["put"]["responses"]["409"]
    assert conflict["content"] == {
        "application/json": {"schema": {"$ref": "#/components/schemas/ChargeIn"}}
    }


def test_an_api_with_errors_of_its_own() -> None:
    """A handler of the API makes the bodies of our errors, so the schema does not say what they
    are.
    """
    refused = schema_of(handled)["paths"]["/handled/charges"]["post"]["responses"]["422"]
    assert "request-mismatch" in refused["description"]
    assert "content" not in refused


def test_nothing_else_changes(made: dict[str, Any]) -> None:
    """All that ninja says itself is there, unguarded operations byte for byte."""
    for name, methods in schema_of(theirs)["paths"].items():
        for method, before in methods.items():
            place = (name.replace("/theirs/", "/api/"), method)
            after = made["paths"][place[0]][method]
            if place not in GUARDED:
                assert after == before
                continue
            parameters, responses = before.pop("parameters"), before.pop("responses")
            assert after["parameters"][: len(parameters)] == parameters
            for code, response in responses.items():
                assert after["responses"][code].items() >= response.items()
            if place[0] != "/api/square":
                assert after.items() >= before.items()


def test_below_a_prefix_of_the_server() -> None:
    """Where the server mounts the project below a path, the operations are found all the same."""
    with override_script_prefix("/shop/"):
        found = schema_of(ours)
    assert "x-idempotency" in found["paths"]["/shop/api/charges"]["post"]


def test_a_component_of_the_projects_own() -> None:
    """One that has the name of ours and says something else stays, and ours is written out where it
    is used.
    """

    class IdempotencyProblem(Schema):
        again: bool

    api = OurAPI(urls_namespace="own")

    @api.post("/charges", response={201: list[IdempotencyProblem]})
    @idempotent()
    def create_charge(request: Any) -> Any: ...

    with override_settings(ROOT_URLCONF=(path("api/", api.urls),)):
        found = schema_of(api)
    validate(found)
    assert set(found["components"]["schemas"]["IdempotencyProblem"]["properties"]) == {"again"}
    refused = found["paths"]["/api/charges"]["post"]["responses"]["422"]
    assert "code" in refused["content"]["application/problem+json"]["schema"]["properties"]
