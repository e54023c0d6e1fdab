"""Adding the header does not change any refusal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.test import Client, override_settings
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils.decorators import method_decorator
from django.views import View

from django_idempotency import Policy, idempotent
from django_idempotency.core.records import Status
from django_idempotency.models import IdempotencyRecord
from testproject.payments.models import Charge
from testproject.payments.views import ChargeViewSet
from tests.support.factories import AdminFactory

from .conftest import CHARGE, KEY, effects
from .urls import FUNCTION_RULES, OPEN, RESTRICTED
from .views import PayView, pay

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("tests.entry_points.urls"),
]

WITH_KEY = {"Idempotency-Key": KEY}
LOGIN_REQUIRED = "django.contrib.auth.middleware.LoginRequiredMiddleware"


#: Redirected by a decorator inside the guard: nothing proves that its view did no work.
REDIRECTED = [
    f"middleware/{rule}/"
    for rule in ("staff-member-required", "permission-required", "user-passes-test")
]
UNREMEMBERED = [route for route in RESTRICTED if route not in REDIRECTED]


def speaking_for(user: User | None, **options: Any) -> Client:
    client = Client(raise_request_exception=False, **options)
    if user is not None:
        client.force_login(user)
    return client


def refusal(response: Any) -> tuple[int, str | None, bytes]:
    return response.status_code, response.get("Location"), response.content


def completed() -> int:
    return IdempotencyRecord.objects.filter(status=Status.COMPLETED).count()


@pytest.mark.parametrize("route", UNREMEMBERED)
def test_who_is_refused_without_a_key_is_refused_with_one(route: str, user: User) -> None:
    """The refusal has the same status, address and body; nothing runs, and no response is
    stored.
    """
    refused = []
    for who in (None, user):
        client = speaking_for(who)
        bare = client.post(f"/{route}")
        if bare.status_code == 201:
            assert who is user
            continue
        assert bare.status_code in (302, 401, 403, 429)
        refused.append(who)
        for _ in range(2):
            assert refusal(client.post(f"/{route}", headers=WITH_KEY)) == refusal(bare)
    assert refused
    assert effects() == (user not in refused)
    assert completed() == 0


@pytest.mark.parametrize("route", RESTRICTED)
def test_who_may_gets_the_work_done_once(route: str) -> None:
    """An allowed user passes, so the refusals above are those of the rules."""
    client = speaking_for(AdminFactory())
    first, retry = (client.post(f"/{route}", headers=WITH_KEY) for _ in range(2))
    assert (first.status_code, retry.status_code) == (201, 201)
    assert (retry.content, retry["Idempotent-Replayed"]) == (first.content, "true")
    assert effects() == 1


@pytest.mark.parametrize("route", REDIRECTED)
def test_a_redirect_of_a_check_before_the_view(route: str, user: User) -> None:
    """It was not the view, and nothing was written: who is allowed meanwhile goes on under the same
    key.
    """
    client = speaking_for(user)
    assert [client.post(f"/{route}", headers=WITH_KEY).status_code for _ in range(2)] == [302, 302]
    User.objects.filter(pk=user.pk).update(is_staff=True, is_superuser=True)
    assert client.post(f"/{route}", headers=WITH_KEY).status_code == 201
    assert effects() == 1


@pytest.mark.parametrize("route", UNREMEMBERED)
def test_who_was_refused_may_come_again_with_the_key(route: str, user: User) -> None:
    """A refusal is not remembered: once the user is allowed, the same key runs the work."""
    assert speaking_for(user).post(f"/{route}", headers=WITH_KEY).status_code in (
        201,
        302,
        403,
        429,
    )
    User.objects.filter(pk=user.pk).update(is_staff=True, is_superuser=True)
    answer = speaking_for(user).post(f"/{route}", headers=WITH_KEY)
    assert answer.status_code == 201
    assert effects() == 1


@pytest.mark.parametrize("route", [*RESTRICTED, *OPEN])
def test_a_forged_form_is_refused_with_a_key(route: str) -> None:
    """CSRF comes first, through every entry point."""
    client = speaking_for(AdminFactory(), enforce_csrf_checks=True)
    bare = client.post(f"/{route}")
    keyed = client.post(f"/{route}", headers=WITH_KEY)
    assert (bare.status_code, keyed.status_code) == (403, 403)
    assert effects() == 0
    assert not IdempotencyRecord.objects.exists()


@pytest.mark.parametrize("route", OPEN)
def test_login_required_middleware_comes_first(route: str) -> None:
    """Django's own views are refused to anonymous callers; DRF's leave it to DRF."""
    middleware = [*settings.MIDDLEWARE]
    middleware.insert(
        middleware.index("django_idempotency.middleware.IdempotencyMiddleware"), LOGIN_REQUIRED
    )
    with override_settings(MIDDLEWARE=middleware):
        client = speaking_for(None)
        bare = client.post(f"/{route}")
        keyed = client.post(f"/{route}", headers=WITH_KEY)
    if route.split("/", maxsplit=1)[0] in ("mixin", "adapted", "rest-class"):
        assert bare.status_code == 201
        return
    assert bare.status_code == 302
    assert refusal(keyed) == refusal(bare)
    assert effects() == 0
    assert not IdempotencyRecord.objects.exists()


@pytest.mark.parametrize("rule", FUNCTION_RULES.values(), ids=FUNCTION_RULES)
def test_an_access_decorator_below_ours_raises_where_it_is_written(rule: Any) -> None:
    """An access decorator below ours raises: a replay would skip it.

    So does one on a handler of a decorated class.
    """
    decorated = type("Decorated", (View,), {"post": method_decorator(rule)(PayView.post)})
    for write_it in (
        lambda: idempotent()(rule(pay)),
        lambda: idempotent()(method_decorator(rule)(PayView.post)),
        lambda: idempotent()(decorated),
    ):
        with pytest.raises(
            ImproperlyConfigured, match=r"above the access decorator of .* Swap the two lines"
        ):
            write_it()


def routes(resolver: URLResolver, prefix: str = "/") -> Iterator[str]:
    """Yield an address for every route."""
    for each in resolver.url_patterns:
        address = prefix + _filled(str(each.pattern))
        if isinstance(each, URLPattern):
            yield address
        else:
            yield from routes(each, address)


def _filled(pattern: str) -> str:
    known = {r"^(?P<url>.*)$": "none/", r"(?P<pk>[^/.]+)": "1", "^": "", "$": "", r"\Z": ""}
    for part, value in known.items():
        pattern = pattern.replace(part, value)
    while "<" in pattern:
        before, _, behind = pattern.partition("<")
        pattern = f"{before}1{behind.partition('>')[2]}"
    return pattern


@pytest.mark.urls("testproject.urls")
@pytest.mark.parametrize(
    ("method", "person"),
    [
        *product(["POST"], ["anonymous", "user", "admin"]),
        *product(["PUT", "PATCH", "DELETE"], ["user"]),
        ("GET", "admin"),
    ],
)
def test_no_route_of_the_testproject_changes_its_status(
    method: str, person: str, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everyone gets the same status with and without a key, except where charges require one
    (tested elsewhere).
    """
    monkeypatch.setattr(ChargeViewSet, "idempotency", Policy())
    # It plays a provider, which asks for a key.
    addresses = sorted({*routes(get_resolver())} - {"/bank/transfers/"})
    assert {
        "/api/charges/",
        "/api/charges/1/refund/",
        "/plain/charges/",
        "/admin/payments/charge/add/",
    } <= {*addresses}
    who = {"anonymous": None, "user": user, "admin": AdminFactory()}[person]
    changed = {}
    client = speaking_for(who)
    for number, address in enumerate(addresses):
        statuses = []
        for headers in ({}, {"Idempotency-Key": f"{KEY}-{number}"}):
            if who is not None and SESSION_KEY not in client.session:  # some routes log out
                client = speaking_for(who)
            answer = client.generic(
                method,
                address,
                json.dumps(CHARGE),
                content_type="application/json",
                headers=headers,
            )
            statuses.append((answer.status_code, answer.get("Location")))
            Charge.objects.update(refunded=0)  # so that it may be refunded twice
        if statuses[0] != statuses[1]:
            changed[address] = statuses
    assert changed == {}
    if person == "anonymous":
        assert effects() == 0
        assert not IdempotencyRecord.objects.exists()
