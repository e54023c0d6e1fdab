"""The fixtures that the tests request."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.conf import settings as django_settings
from django.contrib.auth import get_user_model
from django.test import Client
from django.test.utils import override_settings
from django.urls import reverse
from jwcrypto import jwk
from oauth2_provider.models import get_application_model
from oauth2_provider.settings import oauth2_settings as live

from . import presets

SECRET = "1234567890abcdefghijklmnopqrstuvwxyz"


class Changed:
    """What the fixture `oauth2_settings` is: what is set on it lasts until the end of the test."""

    def __init__(self, values: dict[str, Any]) -> None:
        live.reload()
        # The core is remade for each request: the first one's options would outlive the test.
        self.update({"ALWAYS_RELOAD_OAUTHLIB_CORE": True, **values})

    def update(self, values: dict[str, Any]) -> None:
        override = override_settings(
            OAUTH2_PROVIDER={**getattr(django_settings, "OAUTH2_PROVIDER", {}), **values}
        )
        override.enable()
        live.reload()
        vars(self).setdefault("_overrides", []).append(override)

    def finish(self) -> None:
        for override in reversed(vars(self)["_overrides"]):
            override.disable()
        live.reload()

    def __getattr__(self, name: str) -> Any:
        return getattr(live, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, (list, tuple)) and any(isinstance(each, type) for each in value):
            setattr(live, name, value)  # as it is: a setting's classes are named, and imported
            live._cached_attrs.add(name)  # so that reload() removes it
        else:
            self.update({name: value})


@pytest.fixture
def oauth2_settings(request: pytest.FixtureRequest) -> Iterator[Changed]:
    marker = request.node.get_closest_marker("oauth2_settings")
    changed = Changed({} if marker is None else marker.args[0])
    if request.instance is not None:
        request.instance.oauth2_settings = changed
    yield changed
    changed.finish()


def pem_to_key(pem: str) -> jwk.JWK:
    return jwk.JWK.from_pem(pem.encode())


@pytest.fixture
def oidc_key(request: pytest.FixtureRequest) -> jwk.JWK:
    key = pem_to_key(presets.OIDC_SETTINGS_RW["OIDC_RSA_PRIVATE_KEY"])
    if request.instance is not None:
        request.instance.key = key
    return key


def new_application(**changes: Any) -> Any:
    model = get_application_model()
    values: dict[str, Any] = {
        "name": "Test Application",
        "redirect_uris": "http://example.org",
        "post_logout_redirect_uris": "http://example.org",
        "client_type": model.CLIENT_CONFIDENTIAL,
        "authorization_grant_type": model.GRANT_AUTHORIZATION_CODE,
        "algorithm": model.RS256_ALGORITHM,
        "client_secret": SECRET,
    }
    return model.objects.create(**{**values, **changes})


@pytest.fixture
def application(db: None) -> Any:
    return new_application()


@pytest.fixture
def public_application(db: None) -> Any:
    return new_application(
        name="Other Application", client_type=get_application_model().CLIENT_PUBLIC
    )


@pytest.fixture
def hybrid_application(application: Any) -> Any:
    application.authorization_grant_type = application.GRANT_OPENID_HYBRID
    application.client_secret = SECRET
    application.save()
    return application


@pytest.fixture
def test_user(db: None) -> Any:
    return get_user_model().objects.create_user("test_user", "test@example.com", "123456")


@pytest.fixture
def other_user(db: None) -> Any:
    return get_user_model().objects.create_user("other_user", "other@example.com", "123456")


@pytest.fixture
def logged_in_client(client: Client, test_user: Any) -> Client:
    client.force_login(test_user)
    return client


@pytest.fixture
def rp_settings(oauth2_settings: Changed) -> Changed:
    oauth2_settings.update(presets.OIDC_SETTINGS_RP_LOGOUT)
    return oauth2_settings


def tokens_for(application: Any, user: Any, scope: str = "openid") -> SimpleNamespace:
    """Take a user through the code grant, and return what the client received."""
    client = Client()
    client.force_login(user)
    answer = client.post(
        reverse("oauth2_provider:authorize"),
        data={
            "client_id": application.client_id,
            "state": uuid.uuid4().hex,
            "scope": scope,
            "redirect_uri": "http://example.org",
            "response_type": "code",
            "allow": True,
        },
    )
    code = parse_qs(urlsplit(answer["Location"]).query)["code"]
    granted = client.post(
        reverse("oauth2_provider:token"),
        data={
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": "http://example.org",
            "client_id": application.client_id,
            "client_secret": SECRET,
            "scope": scope,
        },
    ).json()
    return SimpleNamespace(
        user=user,
        application=application,
        access_token=granted["access_token"],
        id_token=granted["id_token"],
        oauth2_settings=live,
    )


@pytest.fixture
def oidc_tokens(oauth2_settings: Changed, application: Any, test_user: Any) -> SimpleNamespace:
    oauth2_settings.update(presets.OIDC_SETTINGS_RW)
    return tokens_for(application, test_user)


@pytest.fixture
def oidc_non_confidential_tokens(
    oauth2_settings: Changed, public_application: Any, test_user: Any
) -> SimpleNamespace:
    oauth2_settings.update(presets.OIDC_SETTINGS_RW)
    return tokens_for(public_application, test_user)


@pytest.fixture
def oidc_email_scope_tokens(
    oauth2_settings: Changed, application: Any, test_user: Any
) -> SimpleNamespace:
    scopes = {**presets.OIDC_SETTINGS_RW["SCOPES"], "email": "Email"}
    oauth2_settings.update({**presets.OIDC_SETTINGS_RW, "SCOPES": scopes})
    return tokens_for(application, test_user, "openid email")
