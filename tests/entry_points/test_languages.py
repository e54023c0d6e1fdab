"""Under i18n_patterns() a route has an address in each language, and is one route to what counts
and compares.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.conf.urls.i18n import i18n_patterns
from django.contrib.auth.models import User
from django.core.cache import cache
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path
from pytest_django import Settings

from django_idempotency import idempotent
from django_idempotency.contrib.limits import FreshKeys, Suspect
from tests.support.meters import RecordingMeter, installed

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
]

TERMS: dict[str, Any] = {
    "limited": {"extensions": [FreshKeys("1/d")]},
    "suspected": {"extensions": [Suspect("body.card", refuse=True)]},
}


def pay(request: HttpRequest) -> HttpResponse:
    return HttpResponse(status=201)


urlpatterns = i18n_patterns(
    *(path(f"{name}/", idempotent(**terms)(pay)) for name, terms in TERMS.items())
)


@pytest.mark.parametrize(("name", "refusal"), [("limited", 429), ("suspected", 409)])
def test_one_route_in_two_languages(
    user: User, settings: Settings, name: str, refusal: int
) -> None:
    """A client does not get a rate for each language, an equal request in another one is a suspect,
    and figures add up.
    """
    settings.MIDDLEWARE = ["django.middleware.locale.LocaleMiddleware", *settings.MIDDLEWARE]
    cache.clear()
    client = Client()
    client.force_login(user)

    def send(language: str) -> int:
        headers = {"Idempotency-Key": str(uuid4())}
        return client.post(
            f"/{language}/{name}/", {"card": 4}, "application/json", headers=headers
        ).status_code

    with installed(meter := RecordingMeter()):
        assert [send("en"), send("de"), send("xx")] == [201, refusal, 404]
    assert {source.route for source, *_ in meter.requests} == {f"{name}/"}
