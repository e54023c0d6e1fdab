"""The server of the APIs, for each test without rows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ....faults.proxy import Proxy
from ..api.stage import Stage
from ..api.stage import stage as shared


@pytest.fixture(scope="session")
def server() -> Iterator[Proxy]:
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", run_syncdb=True, verbosity=0)
    from ..api.server import serving

    with serving() as proxy:
        yield proxy


@pytest.fixture
def stage(server: Proxy) -> Iterator[Stage]:
    from django_idempotency.models import IdempotencyRecord

    from ..api.models import Payment

    shared.reset()
    IdempotencyRecord.objects.all().delete()
    Payment.objects.all().delete()
    yield shared
    shared.released.set()
