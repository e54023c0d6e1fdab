"""django-prometheus: its last middleware must come last, after ours, and only counts."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path
from prometheus_client import REGISTRY

from django_idempotency.checks.middleware import check_middleware
from django_idempotency.http.exchange import HEADER
from testproject.payments.models import Effect

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
]

BEFORE = "django_prometheus.middleware.PrometheusBeforeMiddleware"
AFTER = "django_prometheus.middleware.PrometheusAfterMiddleware"


def charge(request: HttpRequest) -> HttpResponse:
    Effect.objects.create(label="charged", idempotency_key="", attempt=0)
    if "fail" in request.GET:
        raise LookupError
    return HttpResponse(status=201)


urlpatterns = [path("charge/", charge, name="charge")]


@pytest.fixture(autouse=True)
def measured(settings: Any) -> None:
    settings.MIDDLEWARE = [BEFORE, *settings.MIDDLEWARE, AFTER]


def test_check_and_migrate_pass() -> None:
    """The order that django-prometheus itself asks for raises no error. Of its last middleware a
    warning says that it may refuse requests: it does not, which is for the project to say.
    """
    assert [each.id for each in check_middleware()] == ["django_idempotency.W072"]
    call_command("migrate", verbosity=0)


def test_each_request_is_counted_and_guarded(user: User) -> None:
    """There is one effect; to the counter a replay is a response like any other."""
    client = Client(raise_request_exception=False)
    client.force_login(user)
    before = counted()
    answers = [client.post("/charge/", headers={"Idempotency-Key": "k"}) for _ in range(2)]
    assert [(answer.status_code, answer[HEADER]) for answer in answers] == [
        (201, "created"),
        (201, "replayed"),
    ]
    assert (Effect.objects.count(), counted() - before) == (1, 2)
    assert client.post("/charge/?fail", headers={"Idempotency-Key": "another"})[HEADER] == "failed"
    assert Effect.objects.count() == 1


def counted() -> float:
    labels = {"status": "201", "view": "charge", "method": "POST"}
    name = "django_http_responses_total_by_status_view_method_total"
    return REGISTRY.get_sample_value(name, labels) or 0.0
