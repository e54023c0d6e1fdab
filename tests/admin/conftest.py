"""Whom every test of the admin may ask for."""

from __future__ import annotations

import pytest
from django.test import Client

from tests.support.factories import AdminFactory


@pytest.fixture
def boss(db: None) -> Client:
    client = Client()
    client.force_login(AdminFactory())
    return client
