"""The shop over real HTTP, and its stage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from .....faults.proxy import Proxy

if TYPE_CHECKING:
    from ..shop.stage import ShopStage


@pytest.fixture(scope="session")
def server() -> Iterator[Proxy]:
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", run_syncdb=True, verbosity=0)
    from ....clients.api.server import serving
    from ..shop.goods import open_shop

    open_shop()
    with serving() as proxy:
        yield proxy


@pytest.fixture
def stage(server: Proxy) -> Iterator[ShopStage]:
    from ..shop.stage import stage as shared

    shared.reset()
    yield shared
    shared.released.set()
