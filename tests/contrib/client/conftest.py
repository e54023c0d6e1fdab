from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from pytest_django import Settings

from django_idempotency.contrib.client.adaptive import pace_of
from django_idempotency.contrib.client.exchange import budget_of

from .callers import CALLERS, Reply
from .provider import Provider, serving


@pytest.fixture
def providers(settings: Settings) -> dict[str, Any]:
    """Return the options of the provider "fake", which a test may change."""
    options: dict[str, Any] = {"LIFETIME": timedelta(hours=24)}
    settings.IDEMPOTENCY = {"PROVIDERS": {"fake": options}}
    return options


@pytest.fixture
def provider(providers: dict[str, Any]) -> Iterator[Provider]:
    with serving() as provider:
        yield provider


@pytest.fixture(params=list(CALLERS))
def call(request: pytest.FixtureRequest, db: None, provider: Provider) -> Callable[..., Reply]:
    return CALLERS[request.param]


@pytest.fixture(autouse=True)
def own_budgets() -> None:
    """Forget the budgets and paces of other tests: ports are used again."""
    budget_of.cache_clear()
    pace_of.cache_clear()
