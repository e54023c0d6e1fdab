"""An HTML form without JavaScript: what a browser sends, and what a person sees."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connections
from django.test import AsyncClient, Client, override_settings
from django.urls import path
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pytest_django import Settings

from django_idempotency import idempotent
from django_idempotency.contrib.forms.dialect import TEMPLATE
from django_idempotency.errors import ConfigurationError
from django_idempotency.http.issued_keys import issue
from django_idempotency.models import IdempotencyRecord

from . import shop
from .shop import orders

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("tests.contrib.forms.shop"),
]

TEA = {"item": "tea", "count": "1"}
FIELD = re.compile(
    r'<input type="hidden" name="idempotency_key" value="([^"]*)" autocomplete="off" '
    r'data-idempotency="([^"]*)">'
)


def key_in(response: Any) -> str:
    found = FIELD.search(response.content.decode())
    assert found is not None, response.content
    return found[1]


def post(client: Client, url: str, fields: dict[str, Any], **headers: str) -> Any:
    accept = "text/html,application/xhtml+xml,*/*;q=0.8"
    return client.post(
        url, fields, headers={"Accept": accept, "Referer": f"http://testserver{url}", **headers}
    )


def status(response: Any) -> tuple[int, str]:
    return response.status_code, response["Idempotency-Status"]


def test_each_page_has_its_key(browser: Client) -> None:
    """Two pages are two operations; the script learns where to ask for another key."""
    pages = [browser.get("/order/") for _ in range(2)]
    assert key_in(pages[0]) != key_in(pages[1])
    found = FIELD.search(pages[0].content.decode())
    assert found is not None
    assert found[2] == "/idempotency-tokens"
    assert "Cookie" in pages[0]["Vary"]


def test_sent_twice(browser: Client) -> None:
    """A second click, Back or a reload of the response: one order, and the same redirect."""
    fields = {**TEA, "idempotency_key": key_in(browser.get("/order/"))}
    responses = [post(browser, "/order/", fields) for _ in range(3)]
    assert [status(each) for each in responses] == [
        (302, "created"),
        (302, "replayed"),
        (302, "replayed"),
    ]
    assert {each["Location"] for each in responses} == {"/done/"}
    assert orders() == ["tea 1"]


def test_a_corrected_form(browser: Client) -> None:
    """Corrected, it goes through with the new page's key; the old one is that of the page with the
    errors.
    """
    first = key_in(browser.get("/order/"))
    invalid = {"item": "tea", "count": "0", "idempotency_key": first}
    refused = post(browser, "/order/", invalid)
    assert (status(refused), status(post(browser, "/order/", invalid))) == (
        (200, "created"),
        (200, "replayed"),
    )
    assert status(post(browser, "/order/", {**TEA, "idempotency_key": key_in(refused)})) == (
        302,
        "created",
    )
    assert orders() == ["tea 1"]


def test_a_corrected_form_for_turbo(browser: Client) -> None:
    """With 422 the old key is free, too."""
    first = key_in(browser.get("/turbo/"))
    assert status(post(browser, "/turbo/", {"item": "tea", "idempotency_key": first})) == (
        422,
        "released",
    )
    assert status(post(browser, "/turbo/", {**TEA, "idempotency_key": first})) == (302, "created")


def test_a_new_order(browser: Client) -> None:
    """The form, opened again, is another operation, with the same content too."""
    for _ in range(2):
        post(browser, "/order/", {**TEA, "idempotency_key": key_in(browser.get("/order/"))})
    assert orders() == ["tea 1", "tea 1"]


def test_an_answer_without_a_redirect(browser: Client) -> None:
    """A page that shows an empty form after its order is remembered."""
    fields = {**TEA, "idempotency_key": key_in(browser.get("/one-page/"))}
    responses = [post(browser, "/one-page/", fields) for _ in range(2)]
    assert [status(each) for each in responses] == [(200, "created"), (200, "replayed")]
    assert orders() == ["tea 1"]


def test_a_form_that_is_shown_again(browser: Client) -> None:
    """Its page is remembered: a view may find an error after its work.

    A drop() says that nothing was done.
    """
    for query, expected, made in (("", "replayed", 1), ("?drop", "released", 3)):
        fields = {**TEA, "idempotency_key": key_in(browser.get("/late/"))}
        first, retry = (post(browser, f"/late/{query}", fields) for _ in range(2))
        assert "sold out" in first.content.decode()
        assert (status(retry), len(orders())) == ((200, expected), made)


def test_the_key_does_not_count(browser: Client) -> None:
    """It is no part of what must be the same: another spelling of the form's fields is, a file is,
    and the key is not.
    """
    key = key_in(browser.get("/order/"))
    post(browser, "/order/", {**TEA, "idempotency_key": key})
    digest = IdempotencyRecord.objects.get().digest
    other = key_in(browser.get("/order/"))
    post(browser, "/order/", {"idempotency_key": other, **TEA, "csrfmiddlewaretoken": "x"})
    assert {bytes(record.digest) for record in IdempotencyRecord.objects.all()} == {bytes(digest)}


def test_an_upload(browser: Client) -> None:
    """A form with a file is compared by the file, and the view reads it as usual."""
    key = key_in(browser.get("/order/"))
    for content, expected in ((b"a", "created"), (b"a", "replayed"), (b"b", "mismatch")):
        fields = {**TEA, "idempotency_key": key, "note": SimpleUploadedFile("note.txt", content)}
        assert status(post(browser, "/order/", fields))[1] == expected


# ------------------------------------------------------------------------------------ who it is for


def test_a_login_in_between(browser: Client, other_user: User) -> None:
    """The key of a page belongs to the person who got it."""
    key = key_in(browser.get("/order/"))
    browser.force_login(other_user)
    refused = post(browser, "/order/", {**TEA, "idempotency_key": key})
    assert refused.status_code == 400
    assert "another session" in refused.content.decode()
    assert orders() == []


def test_guests(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    """Where guests share a scope, the key is their only secret, and nobody guesses it.

    Elsewhere there is no field.
    """
    fields = {**TEA, "idempotency_key": key_in(client.get("/guests/"))}
    assert [status(post(client, "/guests/", fields))[1] for _ in range(2)] == [
        "created",
        "replayed",
    ]
    assert FIELD.search(client.get("/fresh/").content.decode()) is None
    assert "unknown whose" in caplog.text
    assert post(client, "/fresh/", TEA).status_code == 400


def test_for_one_address(browser: Client) -> None:
    """A form that is sent elsewhere names the address, and its key is good nowhere else."""
    key = key_in(browser.get("/shown-at/order/"))
    assert post(browser, "/turbo/", {**TEA, "idempotency_key": key}).status_code == 400
    assert status(post(browser, "/order/", {**TEA, "idempotency_key": key})) == (302, "created")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("/bare/", "render the template with it"),
        ("/shown-at/nothing/", "nothing at this path"),
        ("/shown-at/plain/charges/", "Put @idempotent_form on it"),
        ("/shown-at/done/", "Put @idempotent_form on it"),
        ("/by-clients/", 'type key_format="issued"'),
    ],
)
def test_a_tag_that_cannot_work(browser: Client, url: str, said: str) -> None:
    """The first look at the page says what to type."""
    with pytest.raises(ImproperlyConfigured, match=re.escape(said)):
        browser.get(url)


def test_under_the_middleware(browser: Client) -> None:
    """It looks for no key in a body: a form is guarded by its view's own @idempotent(), on the
    terms of the settings.
    """
    terms = {
        "PROFILE": "django_idempotency.contrib.forms.Form",
        "KEY_FORMAT": "issued",
        "WAIT": 5,
    }
    with override_settings(IDEMPOTENCY=terms, ROOT_URLCONF=__name__):
        fields = {**TEA, "idempotency_key": key_in(browser.get("/undecorated/"))}
        assert "Idempotency-Status" not in post(browser, "/undecorated/", fields)
        fields = {**TEA, "idempotency_key": key_in(browser.get("/decorated/"))}
        assert [status(post(browser, "/decorated/", fields))[1] for _ in range(2)] == [
            "created",
            "replayed",
        ]
    with (
        override_settings(IDEMPOTENCY={**terms, "REQUIRED": True}, ROOT_URLCONF=__name__),
        pytest.raises(ConfigurationError, match=r"Put @idempotent\(\) on Order"),
    ):
        post(browser, "/undecorated/", fields)
    assert orders() == ["tea 1", "tea 1"]


@idempotent()
class Decorated(shop.Order):
    """On the terms of the settings."""


urlpatterns = [path("undecorated/", shop.Order.as_view()), path("decorated/", Decorated.as_view())]


# ------------------------------------------------------------------------------- what a person sees


def ago(seconds: float) -> datetime:
    return datetime.now(timezone.utc) - timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("fields", "status_code", "said"),
    [
        ({**TEA}, 400, "Open the form again, and send it from there"),
        ({**TEA, "idempotency_key": ""}, 400, "Open the form again, and send it from there"),
        (
            {**TEA, "idempotency_key": "order-17"},
            400,
            "Open the form again, and send it from there",
        ),
        (
            {**TEA, "idempotency_key": ["a", "b"]},
            400,
            "Open the form again, and send it from there",
        ),
        ({**TEA, "idempotency_key": "late"}, 412, "too old"),
        (
            {**TEA, "item": "coffee", "idempotency_key": "used"},
            422,
            "sent before, with other content",
        ),
    ],
    ids=["missing", "empty", "not issued", "two", "late", "edited after Back"],
)
def test_a_refusal_is_a_page(
    browser: Client, user: User, fields: dict[str, Any], status_code: int, said: str
) -> None:
    """A person reads what happened, and where to go on; nothing runs and nothing is stored."""
    key = fields.get("idempotency_key")
    if key == "late":
        fields["idempotency_key"] = issue(f"user:auth.user:{user.pk}", ago(86401))
    if key == "used":
        fields["idempotency_key"] = key_in(browser.get("/order/"))
        post(browser, "/order/", {**TEA, "idempotency_key": fields["idempotency_key"]})
    before = IdempotencyRecord.objects.count()
    refused = post(browser, "/order/", fields)
    assert (refused.status_code, refused["Content-Type"]) == (
        status_code,
        "text/html; charset=utf-8",
    )
    assert said in refused.content.decode()
    # What was sent first with the key was processed: no link invites to send it with another.
    assert ('href="http://testserver/order/"' in refused.content.decode()) is (status_code != 422)
    assert ("no-store" in refused["Cache-Control"], refused["Vary"]) == (True, "Accept, Cookie")
    assert IdempotencyRecord.objects.count() == before


@given(key=st.text(), other=st.binary(max_size=40))
@hypothesis_settings(
    max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
def test_any_field(browser: Client, key: str, other: bytes) -> None:
    """Whatever is in the field, and whatever the body is, the person gets a page, nothing runs and
    nothing is stored.
    """
    for response in (
        post(browser, "/order/", {**TEA, "idempotency_key": key}),
        browser.post(
            "/order/", b"idempotency_key=" + other, content_type="application/x-www-form-urlencoded"
        ),
        browser.post("/order/", b"-" + other, content_type="multipart/form-data; boundary=x"),
    ):
        assert (response.status_code, response["Content-Type"]) == (400, "text/html; charset=utf-8")
    assert (orders(), IdempotencyRecord.objects.exists()) == ([], False)


@pytest.mark.parametrize(
    "referer", ["https://elsewhere.example/", "javascript:alert(1)", "", "//elsewhere.example"]
)
def test_no_link_leads_elsewhere(browser: Client, referer: str) -> None:
    """Only to a page of this site."""
    assert (
        'href="' + referer
        not in post(browser, "/order/", TEA, Referer=referer).content.decode().split("</head>")[1]
    )


def test_a_program_gets_a_document(browser: Client) -> None:
    """So does a client that sends no form, and one that wants no page."""
    wanting = post(browser, "/order/", TEA, Accept="application/json")
    sending = browser.post("/order/", "{}", content_type="application/json")
    assert {each.json()["code"] for each in (wanting, sending)} == {"key-missing"}
    assert {each["Content-Type"] for each in (wanting, sending)} == {"application/problem+json"}


def test_a_projects_own_page(
    browser: Client, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """The template is overridden as any other.

    One that fails is logged, and the client gets the document.
    """
    for source, expected in (
        ("{{ code }} {{ status }} {{ form_url }}", True),
        ("{% load nothing %}", False),
    ):
        settings.TEMPLATES = [
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "OPTIONS": {
                    "loaders": [("django.template.loaders.locmem.Loader", {TEMPLATE: source})]
                },
            }
        ]
        refused = post(browser, "/order/", TEA)
        if expected:
            assert refused.content.decode() == "key-missing 400 http://testserver/order/"
        else:
            assert json.loads(refused.content)["code"] == "key-missing"
            assert "cannot be rendered" in caplog.text


def test_a_page_that_asks_a_database(user: User, settings: Settings) -> None:
    """The template has the project's context, such as the user, whom an event loop may not
    fetch.
    """
    source = "{{ code }} for {{ user.username }}"
    processors = ["django.contrib.auth.context_processors.auth"]
    settings.TEMPLATES = [
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "OPTIONS": {
                "loaders": [("django.template.loaders.locmem.Loader", {TEMPLATE: source})],
                "context_processors": processors,
            },
        }
    ]

    async def send() -> Any:
        client = AsyncClient()
        await sync_to_async(client.force_login)(user)
        return await client.post(
            "/by-a-loop/", {**TEA, "idempotency_key": "a"}, headers={"Accept": "text/html"}
        )

    refused = async_to_sync(send)()
    assert refused.content.decode() == f"key-malformed for {user.get_username()}"


def test_a_second_click_waits(browser: Client, user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the first one runs, and then gets its redirect, also where a process has few threads:
    no page in between.
    """
    monkeypatch.setattr("threading.active_count", lambda: 1)
    fields = {**TEA, "idempotency_key": key_in(browser.get("/order/"))}

    def elsewhere(client: Client) -> Any:
        try:
            return post(client, "/order/", fields)
        finally:
            connections.close_all()

    shop.began.clear()
    shop.gate.clear()
    other = Client()
    other.force_login(user)
    with ThreadPoolExecutor() as pool:
        try:
            first = pool.submit(elsewhere, browser)
            assert shop.began.wait(20)
            second = pool.submit(elsewhere, other)
        finally:
            shop.gate.set()
        responses = [first.result(20), second.result(20)]
    assert sorted(status(each) for each in responses) == [(302, "created"), (302, "replayed")]
    assert orders() == ["tea 1"]
