"""ROUTES: the policies of views that a project cannot edit, by the middleware, as if
`@idempotent(…)` were on them.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.test import AsyncClient, Client, override_settings

from django_idempotency import conf
from django_idempotency.models import IdempotencyRecord
from testproject.payments.models import Effect
from tests.support.factories import TokenFactory, UserFactory

VIEWS = "tests.entry_points.by_route_views"
KEY = "8e03978e-40d5-43e8-bc93-6894a57f9324"

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(VIEWS),
]


def by_route(**routes: Any) -> dict[str, Any]:
    return {
        "ROUTES": {
            name.replace("__", ":").replace("_", "-"): fields for name, fields in routes.items()
        }
    }


def scope(request: Any) -> str | None:
    shop: str | None = request.headers.get("Shop")
    return shop


def send(client: Client, url: str, body: Any = None, *, key: str = KEY, **headers: str) -> Any:
    sent = {"Idempotency-Key": key} if key else {}
    data = json.dumps(body or {"amount": 1})
    return client.post(url, data, content_type="application/json", headers={**sent, **headers})


@pytest.fixture
def ada(db: None) -> Client:
    client = Client(raise_request_exception=False)
    client.force_login(UserFactory())
    return client


@pytest.mark.parametrize("view", ["plain", "based"])
@override_settings(
    IDEMPOTENCY=by_route(name__pay__plain={"required": True}, name__pay__based={"required": True})
)
def test_a_view_of_somebody_else(ada: Client, view: str) -> None:
    """Its policy counts: a key is required, and the work runs once.

    The neighbour is as without an entry.
    """
    assert send(ada, f"/pay/{view}/", key="").json()["code"] == "key-missing"
    first, again = send(ada, f"/pay/{view}/"), send(ada, f"/pay/{view}/")
    assert (
        (first.status_code, first.json())
        == (again.status_code, again.json())
        == (201, again.json())
    )
    assert again["Idempotency-Status"] == "replayed"
    assert send(ada, f"/pay/{view}/", {"amount": 2}).status_code == 422
    assert send(ada, "/pay/other/", key="").status_code == 201
    assert Effect.objects.count() == 2


@override_settings(
    IDEMPOTENCY={
        "ROUTES": {
            "path:/pay/plain/": {"ttl": 60},
            "namespace:pay": {"ttl": 5, "profile": "stripe"},
        }
    }
)
def test_the_first_that_matches(ada: Client) -> None:
    """The order of the dict decides, and what an entry leaves out follows the settings."""
    for view in ("plain", "other"):
        assert send(ada, f"/pay/{view}/", key=f"{view}-{KEY}").status_code == 201
    kept = {
        record.path: (record.expires_at - record.created_at).total_seconds()
        for record in IdempotencyRecord.objects.all()
    }
    assert {path: round(seconds) for path, seconds in kept.items()} == {
        "/pay/plain/": 60,
        "/pay/other/": 5,
    }
    # In the shape of the profile.
    assert "error" in send(ada, "/pay/other/", {"amount": 2}, key=f"other-{KEY}").json()


@override_settings(IDEMPOTENCY=by_route(name__pay__rest={"required": True}))
def test_two_users_of_a_rest_view_share_no_key(db: None) -> None:
    """The guard is behind the view's own authentication: the same key of two users is two keys, and
    nobody's is refused.
    """
    users = [UserFactory(), UserFactory()]
    sent = {
        user.pk: send(Client(), "/pay/rest/", Authorization=f"Token {TokenFactory(user=user).key}")
        for user in users
    }
    assert {pk: response.json()["user"] for pk, response in sent.items()} == {
        user.pk: user.pk for user in users
    }
    assert send(Client(), "/pay/rest/").status_code == 401
    keyless = send(Client(), "/pay/rest/", key="", Authorization=f"Token {users[0].auth_token.key}")
    assert keyless.json()["code"] == "key-missing"
    assert Effect.objects.count() == 2


@override_settings(
    IDEMPOTENCY=by_route(name__pay__plain={"required": True, "scope": f"{__name__}.scope"})
)
def test_who_has_no_user(db: None) -> None:
    """`scope` may be a dotted path. Without a principal nothing runs where a key is required."""
    client = Client()
    bodies = [send(client, "/pay/plain/", Shop=shop).content for shop in ("one", "two", "one")]
    assert bodies[0] == bodies[2] != bodies[1]
    assert send(client, "/pay/plain/").json()["code"] == "scope-required"


@override_settings(
    IDEMPOTENCY=by_route(name__pay__plain={"key": "body.order", "scope": f"{__name__}.scope"})
)
def test_a_key_that_the_policy_selects(db: None) -> None:
    """A request without the header is guarded, too."""
    bodies = [
        send(Client(), "/pay/plain/", {"order": n}, key="", Shop="one").content for n in (1, 2, 1)
    ]
    assert bodies[0] == bodies[2] != bodies[1]


@override_settings(IDEMPOTENCY=by_route(namespace__pay={"required": True, "guarantee": "lease"}))
def test_async_views() -> None:
    """Under a lease, which the entry says: without one the settings' guarantee would refuse it."""
    async_to_sync(_asynchronously)()


async def _asynchronously() -> None:
    client = AsyncClient()
    await client.aforce_login(await User.objects.acreate(username="ada"))
    sent = [await client.post("/pay/awaited/", headers={"Idempotency-Key": KEY}) for _ in range(2)]
    assert [response.status_code for response in sent] == [201, 201]
    assert sent[0].content == sent[1].content
    assert (await client.post("/pay/awaited/")).json()["code"] == "key-missing"


@override_settings(
    IDEMPOTENCY={"EXEMPT": ["path:/pay/plain/"], **by_route(namespace__pay={"required": True})}
)
def test_what_comes_first(ada: Client) -> None:
    """EXEMPT, and a policy of the view's own."""
    assert [send(ada, "/pay/plain/").content != send(ada, "/pay/plain/").content] == [True]
    assert send(ada, "/pay/own/").content == send(ada, "/pay/own/").content


def test_other_settings(ada: Client) -> None:
    """An entry counts from the next request, and is gone with the settings."""
    for fields, status in (
        ({"required": True}, 400),
        ({"required": False}, 201),
        ({"required": True}, 400),
    ):
        with override_settings(IDEMPOTENCY=by_route(name__pay__plain=fields)):
            assert send(ada, "/pay/plain/", key="").status_code == status
    assert send(ada, "/pay/plain/", key="").status_code == 201


@override_settings(IDEMPOTENCY=by_route(name__pay__plain={"required": True}))
def test_a_request_reads_no_setting(ada: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The entries are compiled once."""
    send(ada, "/pay/plain/")
    read: list[str] = []
    get = conf.get

    def noting(name: str) -> Any:
        read.append(name)
        return get(name)

    monkeypatch.setattr(conf, "get", noting)
    assert send(ada, "/pay/plain/")["Idempotency-Status"] == "replayed"
    assert send(ada, "/pay/other/", key="other").status_code == 201
    assert read.count("ROUTES") == 0


@override_settings(IDEMPOTENCY=by_route(nam__pay__plain={"required": True}))
def test_a_wrong_entry_stops_requests(ada: Client) -> None:
    """A view that was to be guarded does not run without a guard."""
    assert send(ada, "/pay/plain/").status_code == 500
    assert not Effect.objects.exists()
