"""One key makes one row, whatever the store of records has lost."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.core import checks
from django.db import IntegrityError, connection, models
from django.db.migrations.writer import MigrationWriter
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import Client
from django.test.utils import isolate_apps
from django.urls import path
from pytest_django import Settings
from redis import Redis
from rest_framework.decorators import api_view
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import current_operation, idempotent, idempotent_function
from django_idempotency.contrib.business_key.fields import IdempotencyKeyField
from django_idempotency.contrib.business_key.models import AlreadyCreated
from django_idempotency.contrib.business_key.running import business_key
from django_idempotency.errors import ConfigurationError
from django_idempotency.models import IdempotencyRecord
from django_idempotency.rest_framework import IdempotentViewMixin
from django_idempotency.runtime.registry import stores
from testproject.payments.models import Invoice, InvoiceLine

from ...entry_points.conftest import KEY
from ...support.services import REDIS

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]

Post = Callable[..., Any]
IN_MEMORY = {
    "STORES": {"default": {"BACKEND": "django_idempotency.stores.memory.MemoryStore"}},
    "GUARANTEE": "lease",
}


def made() -> JsonResponse:
    return JsonResponse({"id": Invoice.objects.create(amount=2499).pk}, status=201)


@idempotent()
def plain(request: HttpRequest) -> HttpResponse:
    return made()


class OfRestFramework(IdempotentViewMixin, APIView):
    def post(self, request: Any) -> Response:
        return Response({"id": Invoice.objects.create(amount=2499).pk}, status=201)


@idempotent()
@api_view(["POST"])
def of_api_view(request: Any) -> Response:
    return Response({"id": Invoice.objects.create(amount=2499).pk}, status=201)


@idempotent()
def careful(request: HttpRequest) -> HttpResponse:
    invoice = Invoice.earlier() or Invoice.objects.create(amount=2499)
    return JsonResponse({"id": invoice.pk}, status=201)


@idempotent()
def twice(request: HttpRequest) -> HttpResponse:
    Invoice.objects.create(amount=1)
    return made()


@idempotent()
def lines(request: HttpRequest) -> HttpResponse:
    InvoiceLine.objects.bulk_create([InvoiceLine(line=1), InvoiceLine(line=2)])
    return HttpResponse(status=201)


@idempotent()
def by_function(request: HttpRequest) -> HttpResponse:
    inner(order=17)
    return made()


@idempotent(guarantee="lease")
def in_steps(request: HttpRequest) -> HttpResponse:
    step = request.idempotency.step  # type: ignore[attr-defined]
    return JsonResponse(
        {"ids": [step("first", inserted, 1), step("second", inserted, 2)]}, status=201
    )


def inserted(amount: int) -> int:
    return int(Invoice.objects.create(amount=amount).pk)


@idempotent_function(key="order", key_prefix="invoice")
def inner(*, order: int) -> int:
    return int(Invoice.objects.create(amount=order).pk)


def meet() -> None:
    """Wait for the other request; a test says how."""


def met(request: HttpRequest) -> HttpResponse:
    meet()
    return made()


urlpatterns = [
    path("met", idempotent()(met)),
    path("met_elsewhere", idempotent(store="other")(met)),
    path("plain", plain),
    path("drf", OfRestFramework.as_view()),
    path("api_view", of_api_view),
    path("middleware", lambda request: made()),
    path("careful", careful),
    path("twice", twice),
    path("lines", lines),
    path("by_function", by_function),
    path("in_steps", in_steps),
]


@pytest.fixture
def post(user: User) -> Post:
    client = Client(raise_request_exception=False)
    client.force_login(user)

    def post(address: str, key: str | None = KEY) -> Any:
        headers = {} if key is None else {"Idempotency-Key": key}
        return client.post(address, "{}", content_type="application/json", headers=headers)

    return post


def lose_records() -> None:
    IdempotencyRecord.objects.all().delete()


@pytest.mark.any_database
@pytest.mark.parametrize("address", ["/plain", "/drf", "/api_view", "/middleware"])
def test_a_second_row_is_refused_when_the_record_is_lost(post: Post, address: str) -> None:
    """The retry gets 409 with the address of the row, and so does the next; a request with another
    key has its row.
    """
    first = post(address)
    assert first.status_code == 201, first.content
    lose_records()
    for retry in (post(address), post(address)):
        assert (retry.status_code, retry["Location"]) == (409, f"/invoices/{first.json()['id']}"), (
            retry.content
        )
        assert json.loads(retry.content)["code"] == "already-created"
    assert post(address, key="5e0ad0fc-0b67-4c3e-8f76-6c2c0f6b2a11").status_code == 201
    assert Invoice.objects.count() == 2


def test_the_row_names_its_record(post: Post) -> None:
    """Its key is the id of the record, so that the admin finds one by the other."""
    post("/plain")
    assert Invoice.objects.get().idempotency_key == IdempotencyRecord.objects.get().pk


def test_records_in_a_store_that_was_flushed(post: Post, settings: Settings) -> None:
    """Nothing but the row remembers the request, and that is enough."""
    settings.IDEMPOTENCY = IN_MEMORY
    first = post("/careful")
    stores["default"]._records.clear()  # type: ignore[attr-defined]
    again = post("/careful")
    assert (again.status_code, again.json()) == (201, first.json())
    assert Invoice.objects.count() == 1


def test_another_client_with_the_same_key(post: Post, user: User) -> None:
    """Keys are unique together with their scope."""
    post("/plain")
    other = Client()
    other.force_login(User.objects.create_user("other"))
    headers = {"Idempotency-Key": KEY}
    assert (
        other.post("/plain", "{}", content_type="application/json", headers=headers).status_code
        == 201
    )
    assert len({each.idempotency_key for each in Invoice.objects.all()}) == 2


def test_without_a_key(post: Post) -> None:
    """What no key guards has none, also in a thread that has served a key before."""
    post("/plain")
    assert business_key() is None
    assert [post("/plain", key=None).status_code for _ in range(2)] == [201, 201]
    assert (
        list(Invoice.objects.filter(idempotency_key=None).values_list("amount", flat=True))
        == [2499] * 2
    )


def test_a_second_row_of_one_request(post: Post) -> None:
    """That is a mistake of the view, which the exception explains, and nothing is written."""
    response = post("/twice")
    kind, error, _ = response.exc_info
    assert (response.status_code, kind) == (500, ConfigurationError)
    assert "second row of payments.Invoice" in str(error)
    assert not Invoice.objects.exists()


@pytest.mark.any_database
def test_several_rows_of_one_request(post: Post) -> None:
    """A field that is unique with another names the line: `bulk_create()` fills it, and the
    database refuses a repetition.
    """
    assert post("/lines").status_code == 201
    assert [each.line for each in InvoiceLine.objects.exclude(idempotency_key=None)] == [1, 2]
    lose_records()
    assert post("/lines").status_code == 500
    assert InvoiceLine.objects.count() == 2


def test_a_call_inside_a_request(post: Post) -> None:
    """A row has the key of the innermost call, and after that the request's again."""
    assert post("/by_function").status_code == 201
    inside, own = Invoice.objects.order_by("pk")
    assert own.idempotency_key != inside.idempotency_key
    ids = set(IdempotencyRecord.objects.values_list("pk", flat=True))
    assert {own.idempotency_key, inside.idempotency_key} == ids


def test_a_function() -> None:
    """A call whose record is lost raises what a consumer takes for done."""
    inner(order=3)
    lose_records()
    with pytest.raises(AlreadyCreated) as caught:
        inner(order=3)
    assert (caught.value.delivery, caught.value.row) == ("done", Invoice.objects.get())
    assert current_operation() is None


def test_steps_have_a_key_each(post: Post) -> None:
    """Two steps of one request make a row each, and the same two after everything is forgotten."""
    first = post("/in_steps")
    assert first.status_code == 201, first.content
    keys = set(Invoice.objects.values_list("idempotency_key", flat=True))
    assert len(keys) == 2
    assert None not in keys
    lose_records()
    assert post("/in_steps").status_code == 409
    assert Invoice.objects.count() == 2


def test_another_violation_is_not_ours(post: Post) -> None:
    """An IntegrityError of another column stays what it is."""
    with pytest.raises(IntegrityError):
        Invoice.objects.create(amount=None)  # type: ignore[misc]


@isolate_apps("tests")
def test_the_check_of_the_app(settings: Settings) -> None:
    """A field that nobody fills is an error that says what to type."""

    class Model(models.Model):  # noqa: DJ008 - nobody sees it
        key = IdempotencyKeyField()

        class Meta:
            app_label = "tests"

    field = Model._meta.get_field("key")
    assert field.check() == []
    settings.INSTALLED_APPS = [
        each for each in settings.INSTALLED_APPS if not each.endswith("business_key")
    ]
    [found] = field.check()
    assert isinstance(found, checks.Error)
    assert "INSTALLED_APPS" in str(found.hint)


def test_its_migration() -> None:
    """What is the default here does not stand in a migration."""
    written, imports = MigrationWriter.serialize(IdempotencyKeyField())
    assert written == "django_idempotency.contrib.business_key.fields.IdempotencyKeyField()"
    assert "unique=False" in MigrationWriter.serialize(IdempotencyKeyField(unique=False))[0]
    assert imports == {"import django_idempotency.contrib.business_key.fields"}


@pytest.mark.needs("redis")
def test_records_in_redis_that_were_flushed(post: Post, settings: Settings) -> None:
    """Redis forgets all at once; the database of the rows does not."""
    settings.CACHES = {"records": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": REDIS}}
    backend = "django_idempotency.stores.redis.RedisStore"
    settings.IDEMPOTENCY = {
        "STORES": {
            "default": {
                "BACKEND": backend,
                "OPTIONS": {"cache": "records", "prefix": f"test-{uuid4()}"},
            }
        },
        "GUARANTEE": "lease",
    }
    first = post("/plain")
    assert (first.status_code, post("/plain")["Idempotency-Status"]) == (201, "replayed")
    with Redis.from_url(REDIS) as client:
        client.delete(*(client.scan_iter(f"*{stores['default'].prefix}:*", count=1000)))  # type: ignore[attr-defined]
    again = post("/plain")
    assert (again.status_code, again["Location"]) == (409, f"/invoices/{first.json()['id']}")
    assert Invoice.objects.count() == 1


@pytest.mark.any_database
def test_two_requests_at_once_whose_stores_share_nothing(
    user: User, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both work at the same moment, and the database of the rows decides: one row, and the other
    gets its address.
    """
    memory = {"BACKEND": "django_idempotency.stores.memory.MemoryStore"}
    settings.IDEMPOTENCY = {"STORES": {"default": memory, "other": memory}, "GUARANTEE": "lease"}
    both = threading.Barrier(2)
    monkeypatch.setattr(f"{__name__}.meet", lambda: both.wait(30))
    found: list[Any] = []

    def send(address: str) -> None:
        client = Client()
        client.force_login(user)
        try:
            found.append(
                client.post(
                    address, "{}", content_type="application/json", headers={"Idempotency-Key": KEY}
                )
            )
        finally:
            connection.close()

    threads = [
        threading.Thread(target=send, args=(address,)) for address in ("/met", "/met_elsewhere")
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    won, lost = sorted(found, key=lambda response: response.status_code)
    assert (won.status_code, lost.status_code) == (201, 409), lost.content
    assert lost["Location"] == f"/invoices/{won.json()['id']}"
    assert Invoice.objects.count() == 1
