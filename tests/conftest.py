"""Fixtures that every folder may ask for: two people, and clients that speak for the first."""

from __future__ import annotations

import logging

import pytest
from django.contrib.auth.models import User
from django.test import Client
from rest_framework.test import APIClient

from django_idempotency.deferring import Deferring

from .factories import TokenFactory, UserFactory


def not_about_speed(record: logging.LogRecord) -> bool:
    """asyncio's debug mode tells of every step over 0.1 s: of a busy machine, that is, and not of what a test does."""
    return not (record.levelno == logging.WARNING and str(record.msg).startswith("Executing %s took"))


logging.getLogger("asyncio").addFilter(not_about_speed)


@pytest.fixture
def deferring(monkeypatch: pytest.MonkeyPatch) -> Deferring:
    """Return a queue of settles without a thread, in place of the process's own: a test calls attempt()."""
    queue = Deferring()
    monkeypatch.setattr(queue, "_start", lambda: None)
    monkeypatch.setattr("django_idempotency.engine.deferring", queue)
    return queue


@pytest.fixture
def user(db: None) -> User:
    return UserFactory()


@pytest.fixture
def other_user(db: None) -> User:
    return UserFactory()


@pytest.fixture
def api(user: User) -> APIClient:
    """Return a DRF client with the user's token."""
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Token {TokenFactory(user=user).key}")
    return client


@pytest.fixture
def browser(user: User) -> Client:
    """Return a Django client with the user's session."""
    client = Client()
    client.force_login(user)
    return client
