"""The project, on a database of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from ..shop.scenarios import Scenario, Seen


class See(Protocol):
    def __call__(self, site: str, scenario: Scenario, **terms: Any) -> Seen: ...


def pytest_configure() -> None:
    """Load the apps, whose models the cases import."""
    import django

    django.setup()


@pytest.fixture(scope="session")
def database() -> Iterator[None]:
    """Make the database, and delete it and the keys in Redis at the end."""
    import redis
    from django.db import OperationalError, connection
    from idemkit.core.sync_bridge import run_sync

    from ..shop.settings import REDIS_URL
    from ..shop.views import PREFIX, REDIS

    name = connection.settings_dict["NAME"]
    try:
        with redis.Redis.from_url(REDIS_URL) as client:
            client.ping()
        connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
    except (redis.ConnectionError, OperationalError) as error:
        pytest.exit(f"Start PostgreSQL and Redis, as .ci/services does: {error}", returncode=1)
    yield
    run_sync(REDIS.aclose())
    with redis.Redis.from_url(REDIS_URL) as client:
        for key in client.scan_iter(f"*{PREFIX}*", count=1000):
            client.delete(key)
    connection.creation.destroy_test_db(name, verbosity=0)


@pytest.fixture
def see(database: None) -> See:
    """Return the function that lets a scenario happen at a site, and returns what it has led to."""
    from ..shop.sites import emptied, opened

    def see(site: str, scenario: Scenario, **terms: Any) -> Seen:
        emptied()
        with opened(site, **terms) as shop:
            return scenario(shop)

    return see
