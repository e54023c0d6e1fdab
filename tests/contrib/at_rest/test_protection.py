"""Records are protected by an app, and nothing is stored where it is asked for and missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.test import modify_settings
from pytest_django import Settings

from django_idempotency import conf
from django_idempotency.api import BaseStore
from django_idempotency.checks.settings import check_settings
from django_idempotency.contrib.at_rest.hashed import HashedStore
from django_idempotency.contrib.at_rest.sealed import SealedStore
from django_idempotency.runtime.app_extensions import AppExtension
from django_idempotency.runtime.registry import PROTECTING, stores
from django_idempotency.stores.base import layers

from .sealed.keys import FIRST

APP = "django_idempotency.contrib.at_rest"
ASKING = {"ENCRYPTION_KEYS": [FIRST], "HASH_KEYS": True}


def test_both(settings: Settings) -> None:
    """Hashes are outside, so that what is sealed is bound to them."""
    pytest.importorskip("cryptography")
    settings.IDEMPOTENCY = ASKING
    assert [type(layer) for layer in layers(stores["default"])][:2] == [HashedStore, SealedStore]
    assert check_settings() == []


@pytest.mark.parametrize("name", PROTECTING)
def test_without_the_app(settings: Settings, name: str) -> None:
    """No store can be used, and both the error and the check say which app to add."""
    with modify_settings(INSTALLED_APPS={"remove": APP}):
        settings.IDEMPOTENCY = {name: ASKING[name]}
        with pytest.raises(ImproperlyConfigured, match=f'{name}.*nothing is stored. Add "{APP}"'):
            stores["default"]
        (found,) = check_settings()
        assert (found.id, f'"{APP}"' in found.msg) == ("django_idempotency.E098", True)
        none: tuple[Sequence[str], ...] = ([], ())
        for keys in none:
            settings.IDEMPOTENCY = {"HASH_KEYS": False, "ENCRYPTION_KEYS": keys}
            assert len(layers(stores["default"])) == 1
            assert check_settings() == []


def test_an_app_of_another_package(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may protect what ours would."""

    class Outside(HashedStore):
        """A store of that package."""

    def protect(store: BaseStore) -> BaseStore:
        return Outside(store, lambda: "secret")

    class Theirs(AppExtension):
        protects: ClassVar = {"HASH_KEYS": protect}

    with modify_settings(INSTALLED_APPS={"remove": APP}):
        config: Any = apps.get_app_config("payments")
        monkeypatch.setattr(config, "extension", Theirs(), raising=False)
        settings.IDEMPOTENCY = {"HASH_KEYS": True}
        assert type(stores["default"]) is Outside


def test_what_no_app_adds() -> None:
    """It is a mistake, and not a name of an app that is missing."""
    assert conf.app_with("FLOODS") is None
    assert conf.app_with("ENCRYPTION_KEYS") == APP
