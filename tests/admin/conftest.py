"""The users that the tests of the admin log in with."""

from __future__ import annotations

import pytest
from django.test import Client

from tests.support.factories import AdminFactory


@pytest.fixture
def boss(db: None) -> Client:
    client = Client()
    client.force_login(AdminFactory())
    return client
