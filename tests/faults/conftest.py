"""Servers that run for the whole folder, their customers, and faults that end with each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from tests.support.factories import TokenFactory

from .clients import Customer
from .database import idle
from .plans import ENDLESS, FOLDER, Faults, until
from .proxy import Proxy
from .servers import Server, gunicorn, uvicorn

#: Any 32 letters and digits that are the same in both places are accepted (CsrfViewMiddleware).
CSRF = "c" * 32


@pytest.fixture(scope="session")
def faults_folder(
    django_db_setup: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("faults")
        patch.setenv(FOLDER, str(folder))
        yield folder


@pytest.fixture(scope="session")
def _fleet(faults_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with gunicorn(tmp_path_factory.mktemp("fleet")) as server:
        yield server


@pytest.fixture
def fleet(_fleet: Server) -> Server:
    """Return gunicorn with 2 processes of 8 threads, all of them running."""
    _fleet.wake()
    _fleet.await_ready()
    return _fleet


@pytest.fixture(scope="session")
def asgi(faults_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return uvicorn with the middleware.

    On it no claim is ever taken over before it is guarded.
    """
    with uvicorn(tmp_path_factory.mktemp("asgi"), CLAIM_LEASE=str(ENDLESS)) as server:
        yield server


@pytest.fixture(scope="session")
def asgi_bare(faults_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return uvicorn without the middleware, with decorators alone. See asgi()."""
    with uvicorn(
        tmp_path_factory.mktemp("asgi"), CLAIM_LEASE=str(ENDLESS), WITHOUT_MIDDLEWARE="1"
    ) as server:
        yield server


@pytest.fixture(scope="session")
def asgi_lease(faults_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return uvicorn with the middleware and the guarantee `lease`."""
    with uvicorn(tmp_path_factory.mktemp("asgi"), GUARANTEE="lease") as server:
        yield server


@pytest.fixture(scope="module")
def proxy(django_db_setup: None) -> Iterator[Proxy]:
    """Return what stands between a server and its database."""
    settings = connection.settings_dict
    proxy = Proxy(settings["HOST"], int(settings["PORT"]))
    yield proxy
    proxy.close()


@pytest.fixture
def faults(transactional_db: None, faults_folder: Path) -> Iterator[Faults]:
    """Return the planner of faults.

    Afterwards everything continues, and no transaction may be left open.
    """
    faults = Faults()
    try:
        yield faults
    finally:
        faults.end()
        until(idle, "all transactions have ended")


@pytest.fixture
def customer(user: User, browser: Client, faults: Faults) -> Iterator[Customer]:
    """Return a customer with a token (DRF) and a session (plain Django)."""
    cookies = f"sessionid={browser.cookies['sessionid'].value}; csrftoken={CSRF}"
    token = TokenFactory(user=user).key
    customer = Customer({"Authorization": f"Token {token}", "Cookie": cookies, "X-CSRFToken": CSRF})
    yield customer
    faults.end()
    customer.close()


@pytest.fixture
def stranger(faults: Faults) -> Iterator[Customer]:
    """Return a customer known only by name (the routes of views.py), without a database query."""
    stranger = Customer()
    yield stranger
    faults.end()
    stranger.close()
