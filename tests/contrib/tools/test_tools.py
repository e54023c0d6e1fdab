"""Tools of `mcp` and `fastmcp`, called by their own clients."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from django.test import override_settings
from django.utils import timezone

pytest.importorskip("mcp")
pytest.importorskip("fastmcp")

from mcp.types import ToolAnnotations

from django_idempotency import realm
from django_idempotency.contrib.tools import hints, idempotent_tool
from django_idempotency.errors import ConfigurationError
from django_idempotency.models import IdempotencyRecord
from testproject.payments.models import Effect

from .servers import KEY, Shop, client, write

pytestmark = [pytest.mark.any_database, pytest.mark.django_db(transaction=True)]

SDKS = ("mcp", "fastmcp")


@pytest.fixture(params=[f"{sdk} {kind}" for sdk in SDKS for kind in ("sync", "async")])
def made(request: pytest.FixtureRequest) -> Any:
    """Return a maker of shops."""
    sdk, _, kind = request.param.partition(" ")
    return lambda **options: Shop(sdk, is_async=kind == "async", **options)


def effects() -> int:
    return Effect.objects.filter(label="tool").count()


def test_once(made: Any) -> None:
    """A repeated call gets the first result, in the form of the first one, and says that it is a replay."""
    shop = made()
    first, again = shop.call(), shop.call()
    assert first.content == again.content == {"id": Effect.objects.get().pk, "amount": 1}
    assert (first.is_error, first.replayed, again.is_error, again.replayed) == (False, False, False, True)


def test_whose_key_it_is(made: Any) -> None:
    """Two callers, or two tools, share no record; two sessions of one caller do."""
    shop = made()
    answers = [shop.call(), shop.call(), shop.call(agent="bob"), shop.call(tool="refund")]
    assert [each.replayed for each in answers] == [False, True, False, False]
    assert effects() == 3
    assert sorted(IdempotencyRecord.objects.values_list("scope", flat=True)) == [
        f"realm:caller:ada/call:{shop.sdk}.charge",
        f"realm:caller:ada/call:{shop.sdk}.refund",
        f"realm:caller:bob/call:{shop.sdk}.charge",
    ]


def test_a_tenant(made: Any) -> None:
    """A caller of one tenant is another one in the next."""
    shop = made()
    for name in ("acme", "umbrella", "acme"):
        with realm(name):
            shop.call()
    assert effects() == 2


def test_nobodys_key(made: Any) -> None:
    """A key without a caller is refused; so is one that is not a key."""
    shop = made()
    assert shop.call(agent=None).said == ("scope-required", "never")
    for key in ("", "ключ", 7, {"a": 1}, "x" * 256):
        assert shop.call(key=key).said == ("key-malformed", "new-key")
    assert effects() == 0


def test_other_arguments(made: Any) -> None:
    """They are another call, whether given or left to their defaults; `_meta` and the Context do not count."""
    shop = made()
    shop.call()
    assert shop.call(2).said == ("request-mismatch", "new-key")
    assert shop.call(note="twice").said == ("request-mismatch", "new-key")
    assert shop.call(note="").replayed
    assert effects() == 1


def test_while_it_runs(made: Any) -> None:
    """A call that is repeated meanwhile is told to come again, and then gets the result."""
    began, goes_on = threading.Event(), threading.Event()

    def work(amount: int) -> Any:
        began.set()
        assert goes_on.wait(30)
        return write(amount)

    shop = made(work=work, guarantee="lease")

    async def run() -> tuple[Any, Any]:
        running = asyncio.create_task(shop.acall())
        while not began.is_set():
            await asyncio.sleep(0.01)
        meanwhile = await shop.acall()
        goes_on.set()
        return await running, meanwhile

    first, meanwhile = asyncio.run(run())
    assert meanwhile.said == ("in-progress", "retry")
    assert meanwhile.content["retry_after"] >= 1
    assert shop.call() == first._replace(replayed=True)
    assert effects() == 1


def test_without_a_key(made: Any) -> None:
    """It runs unguarded, or is refused."""
    shop, strict = made(), made(required=True)
    assert [shop.call(key=None).replayed for _ in range(2)] == [False, False]
    assert strict.call(key=None).said == ("key-missing", "new-key")
    assert effects() == 2


def test_a_key_among_the_arguments(made: Any) -> None:
    """Where the tool has one, `_meta` comes first."""
    shop = made(argument="request_id")
    assert [shop.call(key=None, request_id=name).replayed for name in ("a", "a", "b")] == [False, True, False]
    assert not shop.call(request_id="a").replayed
    assert effects() == 3


def test_a_derived_key(made: Any) -> None:
    """Equal calls of one caller are one until the window has passed since the first ended; a repetition does not prolong it."""
    shop = made(derived_for=30)
    assert [shop.call(key=None).replayed for _ in range(3)] == [False, True, True]
    assert not shop.call(2, key=None).replayed
    assert not shop.call(key=None, agent="bob").replayed
    assert not shop.call(key=None, tool="refund").replayed
    assert shop.call(key=None, agent=None).said == ("scope-required", "never")
    assert not shop.call().replayed  # its own key is another
    assert effects() == 5
    left = [each.expires_at - timezone.now() for each in IdempotencyRecord.objects.exclude(key=KEY)]
    assert all(timedelta(seconds=20) < each <= timedelta(seconds=30) for each in left)
    IdempotencyRecord.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert not shop.call(key=None).replayed


def test_what_the_tool_raises(made: Any) -> None:
    """Its exception is the SDK's to tell, and frees the key; one that is kept is raised again."""
    from .servers import Declined

    for terms, key in (({}, "free"), ({"keep_exceptions": Declined}, "kept")):
        shop = made(**terms)
        assert [shop.call(-1, key=key).is_error for _ in range(2)] == [True, True]
    records = IdempotencyRecord.objects
    assert records.get(key="free").attempt == 2
    assert records.get(key="kept").attempt == 1


@pytest.mark.parametrize("code", ["store-unavailable", "operation-held", "key-expired", "response-not-stored"])
def test_other_problems(made: Any, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a result with a word: the store is away, a person looks, the key is too old, the result was not stored."""
    shop = made(on_takeover=lambda takeover: takeover.hold(), guarantee="lease", expires_after=60, lease=30, store_body=code != "response-not-stored")
    shop.call()
    record = IdempotencyRecord.objects.all()
    match code:
        case "store-unavailable":
            with override_settings(IDEMPOTENCY={"STORES": {"default": {"BACKEND": "tests.contrib.tools.test_tools.Away"}}}):
                assert shop.call().said == (code, "retry")
        case "operation-held":
            record.update(status=1, lease_until=timezone.now() - timedelta(seconds=1))
            assert shop.call().said == (code, "never")
        case "response-not-stored":
            assert shop.call().said == (code, "look-first")
        case "key-expired":
            record.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert effects() == 1
