"""The operations of django-ninja and the setting ROUTES."""

from __future__ import annotations

import pytest
from pytest_django import Settings

from django_idempotency.checks.routed import check_routed

from ...checks.conftest import said


@pytest.mark.urls("tests.contrib.ninja.by_route")
def test_what_the_middleware_leaves(settings: Settings) -> None:
    """E147: an operation checks access inside."""
    settings.IDEMPOTENCY = {"ROUTES": {"path:/api/": {"required": True}}}
    settings.MIDDLEWARE = ["django_idempotency.middleware.IdempotencyMiddleware"]
    assert "the view of /api/charges" in said(check_routed())["E147"]
