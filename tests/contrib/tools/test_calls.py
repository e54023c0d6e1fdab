"""MCP over HTTP: views that take JSON-RPC."""

from __future__ import annotations

import json
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory
from django.utils import timezone
from pytest_django import Settings
from rest_framework.test import APIClient

from django_idempotency import StatusOnly
from django_idempotency.contrib.tools import hints, idempotent_tool_calls
from django_idempotency.contrib.tools.calls import is_kept, renamed
from django_idempotency.core.records import Status
from django_idempotency.models import IdempotencyRecord
from testproject.payments.models import Effect
from tests.support.factories import TokenFactory

from . import views

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("tests.contrib.tools.views"),
]

KEY = "8e03978e-40d5-43e8-bc93-6894a57f9324"
URLS = ("/plain", "/async", "/rest")


def message(
    number: Any,
    key: Any = KEY,
    *,
    tool: str = "charge",
    arguments: dict[str, Any] | None = None,
    **params: Any,
) -> dict[str, Any]:
    meta = {"progressToken": number, **({} if key is None else {"idempotency-key": key})}
    params = {"name": tool, "arguments": arguments or {"amount": 1}, "_meta": meta, **params}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def client_of(user: User) -> Any:
    """Return a client with a session and a token: one of REST framework needs that."""
    client = APIClient()
    client.force_login(user)
    client.credentials(HTTP_AUTHORIZATION=f"Token {TokenFactory(user=user).key}")
    client.raise_request_exception = False
    return client


@pytest.fixture
def agent(user: User) -> Any:
    return client_of(user)


def sent(client: Any, url: str, body: Any, **headers: str) -> Any:
    return client.post(url, json.dumps(body), content_type="application/json", headers=headers)


def said(response: Any) -> tuple[int, Any, str, str]:
    """Return status, id, code and word of a problem."""
    envelope = response.json()
    result = envelope["result"]
    assert (result["isError"], response["Content-Type"]) == (True, "application/json")
    content = result["structuredContent"]
    return response.status_code, envelope["id"], content["code"], content["retry"]


@pytest.mark.parametrize("url", URLS)
def test_once(agent: Any, url: str) -> None:
    """A call that is sent again under a new id gets the first result, under its own id, marked as a
    replay.
    """
    first, again = sent(agent, url, message(1)), sent(agent, url, message("b"))
    expected = first.json()
    assert (expected["id"], expected["result"]["_meta"]) == (1, {"trace": "first"})
    expected["id"] = "b"
    expected["result"]["_meta"]["idempotent-replayed"] = True
    assert (again.status_code, again.json()) == (200, expected)
    assert [each["Idempotency-Status"] for each in (first, again)] == ["created", "replayed"]
    assert Effect.objects.count() == 1


@pytest.mark.parametrize("url", URLS)
def test_whose_key_it_is(agent: Any, other_user: User, url: str) -> None:
    """Two callers, or two tools, share none."""
    for client, tool in ((agent, "charge"), (agent, "refund"), (client_of(other_user), "charge")):
        assert "error" not in sent(client, url, message(1, tool=tool)).json()
    assert Effect.objects.count() == IdempotencyRecord.objects.count() == 3


@pytest.mark.parametrize("url", URLS)
def test_problems(agent: Any, url: str) -> None:
    """They are results of the tool, under the id of the call, and say what to do."""
    sent(agent, url, message(1))
    other = message(2, arguments={"amount": 2})
    assert said(sent(agent, url, other)) == (200, 2, "request-mismatch", "look-first")
    assert said(sent(agent, url, message(3, key="ключ"))) == (200, 3, "key-malformed", "new-key")
    assert said(sent(agent, url, message(4, key=7))) == (200, 4, "key-malformed", "new-key")
    assert Effect.objects.count() == 1


def test_nobody_calls() -> None:
    """A key without a client is refused; REST framework has refused that client before."""
    client = Client()
    assert said(sent(client, "/plain", message(1))) == (200, 1, "scope-required", "never")
    assert said(sent(client, "/async", message(1))) == (200, 1, "scope-required", "never")
    by_header = sent(client, "/async", message(1, key=None), **{"Idempotency-Key": KEY})
    assert said(by_header) == (200, 1, "scope-required", "never")
    assert sent(client, "/rest", message(1)).status_code == 401
    assert not Effect.objects.exists()


def test_a_required_key(agent: Any) -> None:
    """Only the tools that are named need one."""
    for url in ("/plain", "/rest"):
        assert said(sent(agent, url, message(1, key=None))) == (200, 1, "key-missing", "new-key")
    assert "error" not in sent(agent, "/plain", message(1, key=None, tool="search")).json()
    assert "error" not in sent(agent, "/async", message(1, key=None)).json()
    assert Effect.objects.count() == 2


@pytest.mark.parametrize("url", URLS)
def test_where_the_key_is(agent: Any, url: str) -> None:
    """A key is one key, in `_meta` or in the header, and `_meta` counts: an HTTP library makes a
    header for each request.
    """
    sent(agent, url, message(1))
    assert (
        sent(agent, url, message(2, key=None), **{"Idempotency-Key": f'"{KEY}"'})[
            "Idempotency-Status"
        ]
        == "replayed"
    )
    assert (
        sent(agent, url, message(3), **{"Idempotency-Key": "another"})["Idempotency-Status"]
        == "replayed"
    )
    refused = sent(agent, url, message(4, key=None), **{"Idempotency-Key": "a,b"})
    assert said(refused) == (200, 4, "key-malformed", "new-key")
    assert Effect.objects.count() == 1


@pytest.mark.parametrize("name", ["Idempotency-Key", "X-Idem"])
def test_a_header_of_another_name(agent: Any, settings: Settings, name: str) -> None:
    """No header is one key of two tools, whatever it is called, and none comes before `_meta`."""
    settings.IDEMPOTENCY = {"HEADER": "X-Idem"}
    header = {name: "b2b9a1a0-0000-4000-8000-000000000000"}
    for tool in ("charge", "refund"):
        assert (
            sent(agent, "/plain", message(1, tool=tool, key=None), **header)["Idempotency-Status"]
            == "created"
        )
    assert sent(agent, "/plain", message(2), **header)["Idempotency-Status"] == "created"
    assert Effect.objects.count() == 3


def test_events(agent: Any) -> None:
    """A response in the form of server-sent events is replayed under the id of its own call."""
    first, again = (
        sent(agent, "/plain", message(each, arguments={"events": True})) for each in (1, 2)
    )
    before, _, after = first.content.partition(b'"id": 1')
    assert again.content.startswith(before + b'"id": 2')
    assert (again["Idempotency-Status"], again.content.endswith(b"\r\n\r\n"), after != b"") == (
        "replayed",
        True,
        True,
    )
    assert b'"idempotent-replayed": true' in again.content


def test_a_key_among_the_arguments(agent: Any) -> None:
    """Where the tools have one."""
    first, again = (
        sent(agent, "/async", message(each, None, arguments={"request_id": KEY})) for each in (1, 2)
    )
    assert [each["Idempotency-Status"] for each in (first, again)] == ["created", "replayed"]


@pytest.mark.parametrize("url", URLS)
def test_other_messages_pass(agent: Any, url: str) -> None:
    """They are neither guarded nor reported, whatever header they have."""
    for method in ("initialize", "tools/list", "notifications/progress"):
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"name": "charge"}}
        response = sent(agent, url, body, **{"Idempotency-Key": KEY})
        assert response.json()["result"] == {"method": method}
        assert "Idempotency-Status" not in response
    assert not IdempotencyRecord.objects.exists()


@pytest.mark.parametrize("url", URLS)
def test_what_is_no_message(agent: Any, url: str) -> None:
    """A batch with a call, and what is not JSON, are refused: they would pass by the guard."""
    batch = [{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, message(2)]
    for content, code in ((json.dumps(batch), -32600), ("{", -32700), ('{"a": ' * 5000, -32700)):
        response = agent.post(url, content, content_type="application/json")
        assert (response.status_code, response.json()["error"]["code"], response.json()["id"]) == (
            400,
            code,
            None,
        )
    assert not Effect.objects.exists()


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
def test_a_call_by_another_method(agent: Any, method: str) -> None:
    """The view may carry out any message: what asks for a call is guarded, however it is sent."""
    body = json.dumps(message(1, None))
    refused = agent.generic(method, "/plain", body, content_type="application/json")
    assert refused.json()["result"]["structuredContent"]["code"] == "key-missing"
    assert not Effect.objects.exists()
    for number in (1, 2):
        agent.generic(
            method, "/plain", json.dumps(message(number)), content_type="application/json"
        )
    assert Effect.objects.count() == 1


@pytest.mark.parametrize("method", ["GET", "OPTIONS"])
def test_a_call_by_a_method_that_nothing_guards(agent: Any, method: str) -> None:
    """It is refused.

    Any other message passes, and so does a request without one, such as for a stream of events.
    """
    refused = agent.generic(
        method, "/plain", json.dumps(message(1)), content_type="application/json"
    )
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, -32600)
    assert not Effect.objects.exists()
    listing = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    assert (
        agent.generic(method, "/plain", listing, content_type="application/json").status_code == 200
    )
    assert agent.generic(method, "/ignoring").status_code == 200


@pytest.mark.parametrize("depth", [127, 129, 400, 700])
def test_arguments_that_are_nested_deep(agent: Any, depth: int) -> None:
    """However deep they are, they are compared by their value, and the id of the message is not."""
    deep = ("[" * depth) + "1.50" + "]" * depth

    def call(number: int, arguments: dict[str, Any]) -> str:
        return json.dumps(message(number, arguments=arguments)).replace('"HERE"', deep)

    post = partial(agent.post, "/plain", content_type="application/json")
    spelled = ({"deep": "HERE", "amount": 1}, {"amount": 1, "deep": "HERE"})
    statuses = [
        post(call(number, each))["Idempotency-Status"] for number, each in enumerate(spelled)
    ]
    assert statuses == ["created", "replayed"]
    other = post(call(3, spelled[0]).replace("1.50", "1.51"))
    assert other["Idempotency-Status"] == "mismatch"
    assert Effect.objects.count() == 1


def test_a_rewritten_replay_has_no_etag_of_the_first(agent: Any) -> None:
    """Its bytes are others: what the first response says of its own is not said of them."""
    first, again = (sent(agent, "/tagged", message(number)) for number in (1, 2))
    assert ("ETag" in first, "Content-Digest" in first, "X-Kept" in first) == (True, True, True)
    assert ("ETag" in again, "Content-Digest" in again, "X-Kept" in again) == (False, False, True)


def test_any_content_type(agent: Any) -> None:
    """A server may take JSON under any name."""
    for number in (1, 2):
        agent.post("/plain", json.dumps(message(number)), content_type="text/plain")
    assert Effect.objects.count() == 1


@pytest.mark.parametrize("url", URLS)
def test_a_question_to_the_client(agent: Any, url: str) -> None:
    """It is no result: the call goes on with the answer, under its key; then both get the result of
    that.
    """
    asked = message(1, arguments={"ask": True})
    answered = message(2, arguments={"ask": True}, inputResponses={"a": {}}, requestState="s")
    assert sent(agent, url, asked).json()["result"]["resultType"] == "input_required"
    assert "structuredContent" in sent(agent, url, answered).json()["result"]
    assert sent(agent, url, answered)["Idempotency-Status"] == "replayed"
    assert sent(agent, url, asked)["Idempotency-Status"] == "replayed"
    assert Effect.objects.count() == 1


def test_a_stream_is_not_stored(agent: Any) -> None:
    """It is sent on, and the call is done: its repetition is to look first."""
    call = message(1, arguments={"stream": True})
    assert b"".join(sent(agent, "/plain", call).streaming_content).startswith(b"data: ")
    assert said(sent(agent, "/plain", call)) == (200, 1, "response-not-stored", "look-first")
    assert Effect.objects.count() == 1


@pytest.mark.parametrize("url", ["/plain", "/rest"])
def test_a_server_error(agent: Any, url: str) -> None:
    """It remains one, its writes are rolled back, and the key is free for the same call."""
    broken = message(1, arguments={"break": True})
    assert [sent(agent, url, broken).status_code for _ in range(2)] == [500, 500]
    assert not Effect.objects.exists()
    assert IdempotencyRecord.objects.get().attempt == 2


@pytest.mark.parametrize("url", ["/plain", "/rest"])
@pytest.mark.parametrize("how", ["result", "error", "events"])
def test_a_failure_with_status_200(agent: Any, url: str, how: str) -> None:
    """The tool says that it has failed: that is not stored, its writes are rolled back, and the key
    is free for the same call.
    """
    failing = message(1, arguments={"refuse": how, "events": how == "events"})
    for _ in range(2):
        response = sent(agent, url, failing)
        assert (response.status_code, response["Idempotency-Status"]) == (200, "failed")
        assert b'"isError": true' in response.content or b'"error"' in response.content
    assert Effect.objects.count() == 0
    assert IdempotencyRecord.objects.get().attempt == 2
    assert said(sent(agent, url, message(3)))[2:] == ("request-mismatch", "look-first")


@pytest.mark.parametrize("tools", ["charge", [], [""], [None]])
def test_tools_that_name_nothing(tools: Any) -> None:
    """They are refused by the decorator: a text is not a list of its letters."""
    with pytest.raises(ImproperlyConfigured, match="guards nothing"):
        idempotent_tool_calls(tools=tools)


@pytest.mark.parametrize("lists", [True, False])
def test_a_tool_that_the_server_does_not_have(
    caplog: pytest.LogCaptureFixture, lists: bool
) -> None:
    """A typo in its name guards nothing.

    The server's own list of tools tells, and the log has it, once.
    """
    result = (
        {"tools": [{"name": "charge"}, {"name": "refund"}, {}, 7]} if lists else {"tools": "none"}
    )

    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse(json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}))

    guarded = idempotent_tool_calls(
        tools=["chrage", "refund"], required=True, scope=lambda _: "agent"
    )(view)
    for method in ("tools/list", "tools/list", "ping"):
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method})
        guarded(RequestFactory().post("/mcp", body, content_type="application/json"))
    said = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(said) == int(lists)
    assert all(
        "names 'chrage'" in each and each.endswith("Did you mean 'charge'?") for each in said
    )


def test_a_policy_that_stores_no_results() -> None:
    """It can be kept: an earlier call is known, and its result is not sent again."""
    idempotent_tool_calls(extensions=[StatusOnly()])(lambda request: HttpResponse())


@pytest.mark.parametrize("atomic", [True, False])
def test_a_response_that_is_nested_too_deep_to_be_read(atomic: bool) -> None:
    """The tool has run: it is kept by its status, and replayed as it is."""
    response = HttpResponse(b"[" * 100_000 + b"]" * 100_000, content_type="application/json")
    assert is_kept(response, atomic=atomic) is None
    assert renamed(HttpRequest(), response) is response


@pytest.mark.parametrize("how", ["result", "error"])
def test_a_failure_under_a_lease(agent: Any, how: str) -> None:
    """Nothing proves that it did nothing: it is stored, and a repeated call does nothing again."""
    statuses = [
        sent(agent, "/async", message(1, arguments={"refuse": how}))["Idempotency-Status"]
        for _ in range(2)
    ]
    assert (statuses, Effect.objects.count()) == (["created", "replayed"], 1)


@pytest.mark.parametrize("url", URLS)
def test_an_error_that_is_null(agent: Any, url: str) -> None:
    """A member beside the result that says nothing is not a failure."""
    statuses = [
        sent(agent, url, message(1, arguments={"null": True}))["Idempotency-Status"]
        for _ in range(2)
    ]
    assert (statuses, Effect.objects.count()) == (["created", "replayed"], 1)


@pytest.mark.parametrize("url", ["/plain", "/rest"])
def test_in_the_transactions_of_a_project(
    agent: Any, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ATOMIC_REQUESTS a call is guarded as without it, and what passes runs in a transaction
    of its own.
    """
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", True)
    sent(agent, url, message(1))
    assert sent(agent, url, message(2))["Idempotency-Status"] == "replayed"
    broken = message(3, None, tool="search", arguments={"break": True})
    assert sent(agent, "/plain", broken).status_code == 500
    assert Effect.objects.count() == 1


@pytest.mark.parametrize("url", URLS)
def test_while_it_runs(agent: Any, url: str) -> None:
    """A call that is repeated meanwhile gets the time after which it is repeated again."""
    sent(agent, url, message(1))
    soon = timezone.now() + timedelta(seconds=20)
    IdempotencyRecord.objects.update(status=Status.RUNNING.value, lease_until=soon)
    response = sent(agent, url, message(2))
    assert said(response) == (200, 2, "in-progress", "same-key")
    assert response.json()["result"]["structuredContent"]["retry_after"] == int(
        response["Retry-After"]
    )
    assert Effect.objects.count() == 1


def test_other_methods(agent: Any) -> None:
    """A GET opens a stream, or is refused: it is the view's."""
    assert agent.get("/rest").status_code == 405


def test_a_class() -> None:
    with pytest.raises(ImproperlyConfigured, match=r"Rest\.as_view"):
        idempotent_tool_calls()(views.Rest)


def test_hints() -> None:
    """They are as the policy says."""
    assert hints(views.plain)["idempotentHint"]
    assert not hints(views.asynchronous)["idempotentHint"]
