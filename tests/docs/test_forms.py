"""The page of forms is followed: its settings, views, URLconf and templates, as they are
printed.
"""

from __future__ import annotations

import re
import sys
from types import ModuleType
from typing import Any

import pytest
from django import forms
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.template.loader import get_template
from django.test import Client
from django.urls import include, path
from pytest_django import Settings

from django_idempotency.contrib.forms import idempotent_form
from testproject.payments.models import Effect

from .pages import DOCS, blocks

pytestmark = [pytest.mark.any_database, pytest.mark.django_db(transaction=True)]

PAGE = DOCS / "how-to" / "forms.md"


class OrderForm(forms.Form):
    amount = forms.IntegerField()

    def save(self) -> None:
        Effect.objects.create(label="order", idempotency_key="", attempt=0)


def printed(title: str) -> str:
    """Return the first block of the page that has this title."""
    return next(block.code for block in blocks(PAGE) if block.title == title)


@idempotent_form
def pay(request: HttpRequest, pk: int) -> HttpResponse:
    return HttpResponse(status=201)


@pytest.fixture
def client(settings: Settings, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Client:
    """A person who is logged in to the project of the page."""
    project = {"INSTALLED_APPS": ["django.contrib.auth"]}
    exec(printed("settings.py"), project)
    assert set(project["INSTALLED_APPS"]) <= set(settings.INSTALLED_APPS)
    package, own, views, urls = (
        ModuleType(name) for name in ("form", "form.forms", "form.views", "form.urls")
    )
    package.__path__ = []
    own.OrderForm = OrderForm  # type: ignore[attr-defined]
    for module in (package, own, views, urls):
        monkeypatch.setitem(sys.modules, module.__name__, module)
        module.__package__ = "form"
    exec(printed("views.py"), vars(views))
    exec(printed("urls.py"), vars(urls))
    for name in ("order", "detail"):
        (tmp_path / f"{name}.html").write_text(printed(f"templates/{name}.html"), encoding="utf-8")
    (tmp_path / "thanks.html").write_text("Thank you.", encoding="utf-8")
    settings.TEMPLATES = [{**settings.TEMPLATES[0], "DIRS": [tmp_path]}]
    whole = ModuleType("form.project")
    whole.urlpatterns = [path("", include("form.urls")), path("pay/<int:pk>/", pay, name="pay")]  # type: ignore[attr-defined]
    settings.ROOT_URLCONF = whole
    settings.LOGIN_URL = "/accounts/login/"  # Django's own default
    client = Client()
    client.force_login(User.objects.create_user("asha"))
    return client


def test_a_double_click_is_one_order(client: Client) -> None:
    """The form has a key; sent twice it is one order and one page of thanks, and an invalid one is
    corrected.
    """
    page = client.get("/order/").content.decode()
    fields = dict(re.findall(r'name="(\w+)" value="([^"]+)"', page))
    fields.pop("csrfmiddlewaretoken")
    assert len(fields) == 1
    assert "django_idempotency/form.js" in page
    sent = [client.post("/order/", {**fields, "amount": "5"}) for _ in range(2)]
    assert [(each.status_code, each["Location"]) for each in sent] == [(302, "/thanks/")] * 2
    assert client.get("/thanks/").content == b"Thank you."
    assert Effect.objects.count() == 1


def test_a_guest_is_sent_to_the_login(client: Client) -> None:
    client.logout()
    assert client.get("/order/")["Location"].startswith("/accounts/login/")


def test_a_form_for_another_address(client: Client) -> None:
    """The second template has a key that is good at the address that it names."""
    request = client.get("/order/").wsgi_request
    page = get_template("detail.html").render({"order": {"pk": 7}}, request)
    assert 'action="/pay/7/"' in page
    fields = dict(re.findall(r'name="(\w+)" value="([^"]+)"', page))
    assert client.post("/pay/7/", fields).status_code == 201
    assert client.post("/pay/8/", fields).status_code == 400
