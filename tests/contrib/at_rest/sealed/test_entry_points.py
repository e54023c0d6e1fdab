"""Sealed responses, seen by clients and by people: a replay is open, and what does not open is not
run again.
"""

from __future__ import annotations

import re
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from pytest_django import Settings

from django_idempotency import StatusOnly, idempotent_function
from django_idempotency.errors import ResponseNotStored
from django_idempotency.models import IdempotencyRecord

from ....entry_points.conftest import KEY, Sender, effects
from .keys import FIRST, SECOND

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.any_database]


@pytest.fixture(autouse=True)
def keys(settings: Settings) -> None:
    use(settings, [FIRST])


def use(settings: Settings, keys: list[str | None]) -> None:
    settings.IDEMPOTENCY = {**getattr(settings, "IDEMPOTENCY", {}), "ENCRYPTION_KEYS": keys}


def test_a_replay_is_the_same(entry_point: Sender) -> None:
    """Sealed at the settle, open at the replay, in `atomic`, where a lock reads the row."""
    first, again = entry_point(), entry_point()
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert again["Idempotent-Replayed"] == "true"
    assert effects() == 1
    (row,) = IdempotencyRecord.objects.all()
    assert row.response_headers.startswith('[[":sealed"')
    assert b"2499" not in bytes(row.response_body or b"")


@pytest.mark.parametrize(
    "keys_now", [[SECOND], [], [None, SECOND]], ids=["another key", "off", "only another to open"]
)
def test_what_does_not_open(
    entry_point: Sender, settings: Settings, keys_now: list[str | None]
) -> None:
    """The retry is refused with a code of its own, and its work does not run again."""
    entry_point()
    use(settings, keys_now)
    refused = entry_point()
    assert (refused.status_code, refused.json()["code"]) == (409, "response-not-stored")
    assert effects() == 1


def test_a_function(settings: Settings) -> None:
    """Its result comes back with its type; without the key its call raises, and does not run."""
    ran = []

    @idempotent_function(key=lambda order: order, key_prefix="sealed")
    def pay(order: str) -> dict[str, int]:
        ran.append(order)
        return {"paid": 5}

    assert pay("order-1") == pay("order-1") == {"paid": 5}
    use(settings, [SECOND])
    with pytest.raises(ResponseNotStored):
        pay("order-1")
    assert ran == ["order-1"]


def test_what_people_see(
    entry_point: Sender, settings: Settings, admin_client: Client, user: User, admin_user: User
) -> None:
    """The admin and the command open what the keys allow, and say so if they do not."""
    entry_point()
    (row,) = IdempotencyRecord.objects.all()
    page = f"/admin/django_idempotency/idempotencyrecord/{row.pk}/change/"

    def seen() -> tuple[str, str]:
        out = StringIO()
        call_command("idempotency_record", row.scope, KEY, stdout=out)
        return admin_client.get(page).content.decode(), out.getvalue()

    amount = re.compile(r"\b2499\b")  # not part of an id or of a time
    assert all(amount.search(text) for text in seen())
    use(settings, [SECOND])
    for text in seen():
        assert "no key of ENCRYPTION_KEYS opens it" in text
        assert not amount.search(text)
        assert "response-not-stored" in text


def test_a_function_that_mints_a_secret() -> None:
    """With `StatusOnly()` its result is returned once, is not stored, and it does not run
    again.
    """
    ran = []

    @idempotent_function(key=lambda user: user, key_prefix="mints", extensions=[StatusOnly()])
    def mint(user: str) -> str:
        ran.append(user)
        return "secret"

    assert mint("7") == "secret"
    with pytest.raises(ResponseNotStored):
        mint("7")
    assert ran == ["7"]
    assert IdempotencyRecord.objects.get(method="CALL").response_body is None


def test_hashed_scopes_and_keys(entry_point: Sender, settings: Settings) -> None:
    """No column says whose the key was; a retry is replayed, also when the setting is taken
    back.
    """
    settings.IDEMPOTENCY = {**settings.IDEMPOTENCY, "HASH_KEYS": True}
    first, again = entry_point(), entry_point()
    (row,) = IdempotencyRecord.objects.all()
    assert (row.scope[:6], row.key[:6]) == ("#hmac:", "#hmac:")
    settings.IDEMPOTENCY = {**settings.IDEMPOTENCY, "HASH_KEYS": False}
    for replay in (again, entry_point()):
        assert (replay.content, replay["Idempotent-Replayed"]) == (first.content, "true")
    assert effects() == 1
