"""`manage.py idempotency_resume calls`, and what the other commands do with calls."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO
from typing import Any

import httpx
import pytest
import requests
from django.core.management import CommandError, call_command

from django_idempotency.contrib.at_rest.sealed import CannotOpen
from django_idempotency.contrib.client import command as calls_command
from django_idempotency.contrib.client import outgoing
from django_idempotency.contrib.client.ledger import id_of
from django_idempotency.contrib.client.messages import OutgoingRequest, pack_request, unpack_request
from django_idempotency.contrib.client.models import OutgoingCall
from django_idempotency.contrib.client.requests import IdempotentAdapter
from django_idempotency.contrib.client.resuming import send
from django_idempotency.errors import CallResponseNotStored
from django_idempotency.stores.base import utcnow

from . import callers
from .callers import QUICK
from .provider import LOST, Failure, Provider
from .test_calls import Tokens

pytestmark = [pytest.mark.any_database, pytest.mark.django_db]
AMOUNT = {"amount": 2499}
HERE = __name__


def httpx_client() -> httpx.Client:
    return callers.client(headers={"Authorization": "Bearer secret"})


def requests_session() -> requests.Session:
    session = requests.Session()
    session.trust_env = False
    session.headers["Authorization"] = "Bearer secret"
    session.mount("http://", IdempotentAdapter("fake", **QUICK))
    return session


def bare_client() -> httpx.Client:
    return httpx.Client(transport=httpx.HTTPTransport(verify=False), trust_env=False)


def other_client() -> httpx.Client:
    return callers.client("other")


@pytest.fixture(params=["httpx_client", "requests_session"])
def client(request: pytest.FixtureRequest, providers: dict[str, Any]) -> str:
    providers["CLIENT"] = f"{HERE}.{request.param}"
    name: str = request.param
    return name


@pytest.fixture
def resumable(providers: dict[str, Any]) -> None:
    providers["CLIENT"] = f"{HERE}.httpx_client"


def post(client: Any, url: str, name: str) -> None:
    with client, outgoing(name):
        client.post(url, json=AMOUNT, headers={"X-Trace": "t-1"})


def died(
    provider: Provider, name: str = "order-17", *, client: str = "httpx_client", minutes: float = 10
) -> OutgoingCall:
    """Make a call that was sent and did its work, and whose process then died."""
    provider.plan = [LOST] * 4
    with pytest.raises((httpx.TransportError, requests.ConnectionError)):
        post(globals()[client](), f"{provider.url}/pay?token=7", name)
    found = OutgoingCall.objects.filter(pk=id_of("fake", name))
    found.update(state="open", last_sent=utcnow() - timedelta(minutes=minutes))
    provider.seen.clear()
    provider.plan.clear()  # the budget may have ended the retries
    return found.get()


def run(*arguments: str) -> str:
    out = StringIO()
    call_command("idempotency_resume", "calls", "--send", *arguments, stdout=out, stderr=StringIO())
    return out.getvalue().strip()


def test_finished(provider: Provider, client: str) -> None:
    """The same request, key included, is sent with the credentials of the client; there is one
    effect.
    """
    call = died(provider, client=client)
    assert run() == "1 call finished."
    ((key, body, headers),) = provider.seen
    assert (key, body) == (call.key, provider.seen[0][1])
    assert (headers["authorization"], headers["x-trace"]) == ("Bearer secret", "t-1")
    assert headers["content-type"] == "application/json"
    assert set(provider.effects.values()) == {1}
    call.refresh_from_db()
    assert (call.state, call.attempts, call.request, call.reference) == (
        "succeeded",
        5,
        None,
        "req_first",
    )
    assert run() == "Nothing to resume."


def oauth_client() -> httpx.Client:
    return callers.client(auth=Tokens())


def test_a_client_that_asks_for_a_token(provider: Provider, providers: dict[str, Any]) -> None:
    """What is sent for the token is another request, and passes; the call is finished."""
    providers["CLIENT"] = f"{HERE}.oauth_client"
    call = died(provider)
    assert run() == "1 call finished."
    assert provider.keys == [None, call.key]


@pytest.mark.parametrize("requires", [True, False])
def test_a_client_that_changes_the_request(
    provider: Provider,
    providers: dict[str, Any],
    resumable: None,
    monkeypatch: pytest.MonkeyPatch,
    requires: bool,
) -> None:
    """It would be another request: nothing is sent."""
    call = died(provider)
    changing = callers.client(params={"version": "2"}, require_names=requires)
    monkeypatch.setattr(
        "django_idempotency.contrib.client.providers.import_string", lambda path: lambda: changing
    )
    with pytest.raises(CommandError, match="Another request"):
        run()
    assert provider.seen == []
    call.refresh_from_db()
    assert call.state == "open"


def test_repeated_headers(provider: Provider, client: str) -> None:
    """Each value is sent again. requests takes a dict, so its session sends them as one list."""
    request = OutgoingRequest(
        method="POST", url=provider.url, headers=(("X-Tag", "a"), ("X-Tag", "b")), body=b"{}"
    )
    sent: list[list[str]] = []
    made = globals()[client]()
    if client == "httpx_client":
        made.event_hooks = {
            "request": [lambda request: sent.append(request.headers.get_list("x-tag"))]
        }
    with made, outgoing("order-17"):
        send(made, request)
    assert sent or provider.seen[0][2]["x-tag"] == "a, b"
    assert all(values == ["a", "b"] for values in sent)


def test_a_refused_call_that_is_sent_again(provider: Provider, resumable: None) -> None:
    """Its request was dropped when it was refused; the process that sends it again may die as
    well.
    """
    died(provider)
    provider.plan = [Failure(status=422)]
    post(httpx_client(), f"{provider.url}/pay?token=7", "order-17")
    refused = OutgoingCall.objects.get()
    assert (refused.state, refused.request) == ("refused", None)
    died(provider)
    assert run() == "1 call finished."
    assert set(provider.effects.values()) == {1}


def test_credentials_are_not_stored(provider: Provider, client: str) -> None:
    call = died(provider, client=client)
    assert call.request is not None
    assert b"secret" not in bytes(call.request)
    assert b"token" not in call.url.encode()


def test_only_dead_processes(provider: Provider, resumable: None) -> None:
    """A call that was sent a minute ago may be running, and one that gave up has told its
    caller.
    """
    died(provider, "running", minutes=1)
    died(provider, "gave up")
    OutgoingCall.objects.filter(pk=id_of("fake", "gave up")).update(state="unknown")
    assert run() == "Nothing to resume."
    assert run("--older-than", "30s") == "1 call finished."
    assert run("--unanswered") == "1 call finished."


def test_past_the_lifetime(provider: Provider, resumable: None) -> None:
    """Nothing is sent: it might be another charge. Calls that gave up are held as well."""
    for name in ("dead", "gave up"):
        died(provider, name)
    OutgoingCall.objects.filter(pk=id_of("fake", "gave up")).update(state="unknown")
    OutgoingCall.objects.update(first_sent=utcnow() - timedelta(hours=24))
    with pytest.raises(
        CommandError, match=r"0 calls finished, 2 held for a person. Decide .* in the admin"
    ):
        run()
    assert provider.seen == []
    assert set(OutgoingCall.objects.values_list("state", flat=True)) == {"held"}
    assert run() == "Nothing to resume."


def test_a_provider_that_is_down(provider: Provider, resumable: None) -> None:
    """The call stays open, and the next run goes on."""
    died(provider)
    provider.plan = [Failure(status=503)] * 4
    with pytest.raises(CommandError, match="1 left"):
        run()
    assert OutgoingCall.objects.get().state == "open"
    assert run("--older-than", "0s") == "1 call finished."


@pytest.mark.parametrize(
    ("client", "words"),
    [
        ("bare_client", "none of ours"),
        ("other_client", "would be made twice"),
        ("nobody", "nobody"),
    ],
)
def test_a_wrong_client(
    provider: Provider, providers: dict[str, Any], settings: Any, client: str, words: str
) -> None:
    """It is said, and the call is left."""
    providers["CLIENT"] = f"{HERE}.httpx_client"
    died(provider)
    settings.IDEMPOTENCY = {
        "PROVIDERS": {"fake": providers, "other": {"LIFETIME": timedelta(hours=1)}}
    }
    providers["CLIENT"] = f"{HERE}.{client}"
    with pytest.raises(CommandError, match=words):
        run()
    assert OutgoingCall.objects.get().state == "open"


def test_without_a_client(provider: Provider, providers: dict[str, Any]) -> None:
    """Nothing is stored to resume with; it is said until a person decides."""
    call = died(provider)
    assert call.request is None
    with pytest.raises(CommandError, match='Type a "CLIENT"'):
        run()


def test_list_and_limit(provider: Provider, resumable: None) -> None:
    """Without --send it lists, and sends nothing."""
    for number in range(3):
        died(provider, f"order-{number}")
    out = StringIO()
    call_command("idempotency_resume", "calls", stdout=out)
    said = out.getvalue()
    assert "fake  order-1  open\n" in said
    assert said.endswith("3 calls due.\n")
    assert provider.seen == []
    assert run("--limit", "2") == "2 calls finished."
    assert run("--provider", "another") == "Nothing to resume."
    assert run("--provider", "fake") == "1 call finished."


def test_calls_that_cannot_be_sent(provider: Provider, resumable: None, settings: Any) -> None:
    """Those of a provider that has no client any more are the oldest each time: they use up no
    limit.
    """
    for number in range(3):
        call = died(provider, f"gone-{number}", minutes=60)
        OutgoingCall.objects.filter(pk=call.pk).update(provider="gone")
    died(provider, "order-17")
    for _ in range(2):
        with pytest.raises(CommandError, match="Type the provider 'gone'"):
            run("--send", "--limit", "1")
    assert OutgoingCall.objects.get(pk=id_of("fake", "order-17")).state == "succeeded"


def test_a_call_that_cannot_be_judged(
    provider: Provider, resumable: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that may be forgotten, and fails when it is held, keeps no other from being sent."""
    forgotten = died(provider, "old")
    OutgoingCall.objects.filter(pk=forgotten.pk).update(first_sent=utcnow() - timedelta(days=90))
    died(provider, "order-17")
    monkeypatch.setattr(calls_command, "end_forgotten", lambda *_: 1 / 0)
    with pytest.raises(CommandError, match="ZeroDivisionError"):
        run("--send")
    assert OutgoingCall.objects.get(pk=id_of("fake", "order-17")).state == "succeeded"


def test_a_call_that_moves_on(
    provider: Provider, resumable: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between finding and sending, its own caller sends it: the row says so, and the command leaves
    it.
    """
    died(provider)

    def meanwhile() -> httpx.Client:
        OutgoingCall.objects.update(attempts=9, last_sent=utcnow())
        return httpx_client()

    monkeypatch.setattr(
        "django_idempotency.contrib.client.providers.import_string", lambda path: meanwhile
    )
    assert run() == "0 calls finished, 1 taken by another process."
    assert provider.seen == []


def test_every_call_is_found(
    provider: Provider, resumable: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages do not skip calls, although those that were sent leave them, and others were sent at
    the same time.
    """
    monkeypatch.setattr("django_idempotency.contrib.client.resuming.PAGE", 2)
    for number in range(5):
        died(provider, f"order-{number}")
    OutgoingCall.objects.update(last_sent=utcnow() - timedelta(hours=1))
    assert run() == "5 calls finished."


# ------------------------------------------------------------------------------------------ at rest

KEYS = ["a2V5IG9uZSBrZXkgb25lIGtleSBvbmUga2V5IG9uZSE="]


def test_sealed(
    provider: Provider, providers: dict[str, Any], resumable: None, settings: Any
) -> None:
    """Request and response are sealed, each for its own call, and open again."""
    settings.IDEMPOTENCY = {"PROVIDERS": {"fake": providers}, "ENCRYPTION_KEYS": KEYS}
    call = died(provider)
    assert call.request is not None
    assert b"2499" not in bytes(call.request)
    assert run() == "1 call finished."
    call.refresh_from_db()
    assert call.response is not None
    assert b"ch_1" not in bytes(call.response)
    with httpx_client() as client:
        again = client.post(
            f"{provider.url}/pay?token=7", json=AMOUNT, extensions={"idempotency": "order-17"}
        )
    assert again.json()["id"] == "ch_1"
    request = OutgoingRequest(method="POST", url="https://x.example", headers=(), body=b"")
    with pytest.raises(CannotOpen):
        unpack_request(
            id_of("fake", "other"), pack_request(call.pk, request, key_header="Idempotency-Key")
        )


def test_purge(provider: Provider, resumable: None) -> None:
    """What ended before its retention goes; what waits for somebody stays, however old."""
    for number, state in enumerate(["succeeded", "void", "refused", "unknown", "held", "open"]):
        died(provider, f"order-{number}")
        OutgoingCall.objects.filter(pk=id_of("fake", f"order-{number}")).update(state=state)
    out = StringIO()
    call_command("purge_idempotency", stdout=out)
    assert "outgoing" not in out.getvalue()
    OutgoingCall.objects.update(last_sent=utcnow() - timedelta(days=31))
    call_command("purge_idempotency", "--dry-run", stdout=out)
    assert "3 outgoing calls would be deleted." in out.getvalue()
    call_command("purge_idempotency", "--batch-size", "2", stdout=out)
    assert "3 outgoing calls deleted" in out.getvalue()
    assert set(OutgoingCall.objects.values_list("state", flat=True)) == {"unknown", "held", "open"}


def test_purge_of_a_provider_that_is_gone(
    provider: Provider, resumable: None, settings: Any
) -> None:
    died(provider)
    OutgoingCall.objects.update(state="succeeded", last_sent=utcnow() - timedelta(days=31))
    settings.IDEMPOTENCY = {"PROVIDERS": {"other": {"LIFETIME": timedelta(hours=1)}}}
    out = StringIO()
    call_command("purge_idempotency", stdout=out)
    assert "1 outgoing call deleted" in out.getvalue()


def test_erase(provider: Provider, resumable: None) -> None:
    """What is stored of a call goes, and its name stays used. What has not ended is left."""
    post(httpx_client(), provider.url, "alice@example.org")
    out = StringIO()
    call_command("idempotency_erase", "--call", "alice@example.org", "--dry-run", stdout=out)
    assert "1 outgoing calls would be erased" in out.getvalue()
    call_command("idempotency_erase", "--call", "alice@example.org", "--no-input", stdout=out)
    assert "1 outgoing calls erased." in out.getvalue()
    call = OutgoingCall.objects.get()
    assert (call.name, call.url, call.request, call.response) == ("#erased", "", None, None)
    with pytest.raises(CallResponseNotStored):
        post(httpx_client(), provider.url, "alice@example.org")
    died(provider, "bob@example.org")
    with pytest.raises(CommandError, match="1 left"):
        call_command("idempotency_erase", "--call", "bob@example.org", "--no-input", stdout=out)
