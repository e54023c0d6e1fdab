"""REST framework's browsable API with keys: the page, and the requests that its script sends."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.staticfiles import finders
from django.test import Client, override_settings
from django.urls import path
from rest_framework.authentication import SessionAuthentication
from rest_framework.generics import ListCreateAPIView
from rest_framework.permissions import AllowAny
from rest_framework.serializers import ModelSerializer

from django_idempotency import Policy
from django_idempotency.rest_framework import IdempotentViewMixin
from django_idempotency.rest_framework.browsable_api import IdempotentBrowsableAPIRenderer
from testproject.payments.models import Effect
from tests.entry_points.conftest import KEY, effects

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
]

SCRIPT = "django_idempotency/browsable-api.js"
HTML = "text/html; q=1.0, */*"


class EffectSerializer(ModelSerializer[Effect]):
    class Meta:
        model = Effect
        fields = ("id", "label")


class Effects(IdempotentViewMixin, ListCreateAPIView[Effect]):
    idempotency = Policy(required=True)
    authentication_classes = (SessionAuthentication,)
    permission_classes = (AllowAny,)
    renderer_classes = (IdempotentBrowsableAPIRenderer,)
    serializer_class = EffectSerializer
    queryset = Effect.objects.all()


urlpatterns = [path("effects/", Effects.as_view())]


@pytest.fixture
def browser(user: User) -> Client:
    client = Client(raise_request_exception=False, headers={"Accept": HTML})
    client.force_login(user)
    return client


def scripts(page: str) -> list[tuple[str, str]]:
    """Return the attributes and the content of every script of a page."""
    return re.findall(r"<script([^>]*)>(.*?)</script>", page, re.DOTALL)


@pytest.mark.parametrize("header", ["Idempotency-Key", "X-Order-Key"])
def test_the_page_has_the_script_and_the_name_of_the_header(browser: Client, header: str) -> None:
    """The script comes last, after REST framework's settings, and is a static file of ours."""
    with override_settings(IDEMPOTENCY={"HEADER": header}):
        page = browser.get("/effects/").text
    found = scripts(page)
    assert f"/{SCRIPT}" in found[-1][0]
    assert any(
        'id="django-idempotency-header"' in about and content == f'"{header}"'
        for about, content in found
    )
    # The script reads the CSRF token from it.
    assert any('id="drf_csrf"' in about for about, _ in found)
    assert '<div id="content"' in page  # the forms that it sends are in there
    assert finders.find(SCRIPT)


@pytest.mark.parametrize(
    ("policy", "setting", "version"), [("any", "uuid7", 4), ("uuid7", "any", 7), (None, "uuid7", 7)]
)
def test_the_page_says_which_keys_the_view_accepts(
    browser: Client, monkeypatch: pytest.MonkeyPatch, policy: str | None, setting: str, version: int
) -> None:
    """The policy of the view goes before the setting."""
    given: dict[str, Any] = {} if policy is None else {"key_format": policy}
    monkeypatch.setattr(Effects, "idempotency", Policy(required=True, **given))
    with override_settings(IDEMPOTENCY={"KEY_FORMAT": setting}):
        found = scripts(browser.get("/effects/").text)
    assert any(
        'id="django-idempotency-key-version"' in about and said == str(version)
        for about, said in found
    )


def test_the_page_sends_no_key_that_it_cannot_make(browser: Client) -> None:
    """Where the server issues the keys, the script stays away."""
    with override_settings(IDEMPOTENCY={"KEY_FORMAT": "issued"}):
        assert SCRIPT not in browser.get("/effects/").text


def test_the_page_runs_under_the_same_content_security_policy(browser: Client) -> None:
    """We add no inline script, so a policy that fits REST framework's own page is enough."""
    for about, content in scripts(browser.get("/effects/").text):
        assert not content.strip() or 'type="application/json"' in about


def test_what_the_script_sends_is_guarded(user: User) -> None:
    """A form goes out with a key, and the page's CSRF token in a header; the replay is the page
    that was stored.
    """
    browser = Client(enforce_csrf_checks=True, headers={"Accept": HTML})
    browser.force_login(user)
    found = re.search(r'"csrfToken": "(\w+)"', browser.get("/effects/").text)
    assert found is not None

    def send(**headers: str) -> Any:
        return browser.post(
            "/effects/", {"label": "form"}, headers={"X-CSRFToken": found[1], **headers}
        )

    first, retry = (send(**{"Idempotency-Key": KEY}) for _ in range(2))
    assert (first.status_code, retry.status_code, retry.content) == (201, 201, first.content)
    assert retry["Content-Type"].startswith("text/html")
    assert retry["Idempotent-Replayed"] == "true"
    assert effects() == 1
    assert send().json()["code"] == "key-missing"  # as a form of REST framework's own page would
