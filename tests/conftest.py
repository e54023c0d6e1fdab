"""Which tests run where, and fixtures for every folder: two users, and clients logged in as the
first.
"""

from __future__ import annotations

import fcntl
import gc
import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextvars import ContextVar, copy_context
from typing import Any
from zlib import crc32

import pytest
from django.contrib.auth.management import create_permissions
from django.contrib.auth.models import User
from django.contrib.contenttypes.management import create_contenttypes
from django.contrib.contenttypes.models import ContentType
from django.core.management.color import Style
from django.core.signals import setting_changed
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.db.models.signals import post_migrate
from django.dispatch import receiver
from django.test import Client, override_settings
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from pytest_django import DjangoDbBlocker, Settings
from rest_framework.test import APIClient

from django_idempotency import signals
from django_idempotency.engine.deferring import Deferring

from .support import combining
from .support.factories import TokenFactory, UserFactory
from .support.observed import OBSERVE, Observed
from .support.services import missing

#: Fixtures of pytest-django: a test that requests one, or has the mark `django_db`, needs a
#: database.
DATABASE_FIXTURES = frozenset({"db", "transactional_db", "django_db_setup", "live_server"})

#: Is this the context of a test?
IN_CONTEXT = ContextVar("in_context", default=False)


def not_about_speed(record: logging.LogRecord) -> bool:
    """Silence asyncio's debug warnings about steps over 0.1 s: they report a busy machine, not what
    a test does.
    """
    return not (
        record.levelno == logging.WARNING and str(record.msg).startswith("Executing %s took")
    )


logging.getLogger("asyncio").addFilter(not_about_speed)
combining.set_default()

# The first example of a fresh clone waits for tables of characters. Hypothesis forgives this only
# where CI is set.
hypothesis_settings.register_profile(
    "shared", hypothesis_settings(), suppress_health_check=[HealthCheck.too_slow]
)
hypothesis_settings.load_profile("shared")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--one-case", action="store_true", help="run one case of each parametrized test"
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Iterator[None]:
    """Leave what collecting makes to no collector of garbage, neither now nor later: it lives as
    long as the process.
    """
    gc.disable()
    yield
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Iterator[None]:
    """Mark tests; then, when the marks have been applied, keep one case of each if that is asked
    for.
    """
    mark(items)
    yield
    if config.getoption("one_case"):
        chosen = one_case_each(items)
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = [item for item in items if item in chosen]


def one_case_each(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """Choose one case of each test by a hash of its name, so that different tests tend to run
    different cases.
    """
    cases = defaultdict[str, list[pytest.Item]](list)
    for item in sorted(items, key=lambda item: item.nodeid):
        cases[item.nodeid.partition("[")[0]].append(item)
    return {same[crc32(name.encode()) % len(same)] for name, same in cases.items()}


def mark(items: Sequence[pytest.Item]) -> None:
    """Mark tests without a database `unit` and those that use moto `slow`; skip those whose service
    is not here.
    """
    for item in items:
        fixtures = item.fixturenames if isinstance(item, pytest.Function) else ()
        if item.get_closest_marker("django_db") is None and DATABASE_FIXTURES.isdisjoint(fixtures):
            item.add_marker("unit")
        if "dynamodb" in fixtures:
            item.add_marker("slow")
        for needed in item.iter_markers("needs"):
            if reason := missing(*needed.args):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> object:
    """Run each test in a context of its own.

    Each URLconf and each set of caches that a test brings leaves context variables of Django's, and
    asgiref copies all of them between threads: after some thousand tests that takes longer than the
    tests.
    """
    if IN_CONTEXT.get():
        return None
    context = copy_context()
    context.run(IN_CONTEXT.set, True)
    return context.run(item.ihook.pytest_runtest_protocol, item=item, nextitem=nextitem)


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Set the database up, then speed up the flush that ends each test with transaction=True.

    The flush does not recreate content types and permissions, which took ten times as long as the
    rest of it: a test that grants a permission makes its row (`factories.grant`). On PostgreSQL the
    flush deletes the rows: TRUNCATE would write new files for all tables, which takes fifty times
    as long.
    """
    do_not_recreate()
    with pytest.MonkeyPatch.context() as patch:
        if connection.vendor == "postgresql":
            patch.setattr(connection.ops, "sql_flush", deletions)
            with django_db_blocker.unblock():
                do_not_wait_for_the_disk()
        yield


@receiver(setting_changed)
def do_not_recreate(*, setting: str = "INSTALLED_APPS", **_: Any) -> None:
    """Keep a flush from recreating rows.

    With other INSTALLED_APPS, the apps connect what does it again.
    """
    if setting == "INSTALLED_APPS":
        post_migrate.disconnect(
            create_permissions, dispatch_uid="django.contrib.auth.management.create_permissions"
        )
        post_migrate.disconnect(create_contenttypes)


def do_not_wait_for_the_disk() -> None:
    """Let PostgreSQL acknowledge commits before they are on disk: a tenth of the time, and only a
    crash loses one.
    """
    with connection.cursor() as cursor:
        name = connection.ops.quote_name(connection.settings_dict["NAME"])
        cursor.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    connection.close()


@receiver(connection_created)
def do_not_sync(connection: BaseDatabaseWrapper, **_: Any) -> None:
    """The same for SQLite: a commit takes a sixtieth of the time.

    A power cut can lose it, a killed process cannot.
    """
    if connection.vendor == "sqlite":
        connection.connection.execute("PRAGMA synchronous = OFF")


def deletions(style: Style, tables: Sequence[str], **options: bool) -> list[str]:
    """Return a statement for each table that has rows.

    Foreign keys are checked at the commit, when all are empty.
    """
    if not tables:
        return []
    with connection.cursor() as cursor:
        cursor.execute(
            " UNION ALL ".join(f"(SELECT '{table}' FROM \"{table}\" LIMIT 1)" for table in tables)
        )
        return [f'DELETE FROM "{table}"' for (table,) in cursor.fetchall()]


@pytest.fixture(scope="session", autouse=True)
def quick_passwords() -> Iterator[None]:
    """Hash passwords quickly: a good hasher takes a fifth of a second for each user of a test."""
    with override_settings(PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"]):
        yield


@pytest.fixture(autouse=True)
def content_types() -> Iterator[None]:
    """Forget the rows that a test made: they are rolled back or flushed with it."""
    yield
    ContentType.objects.clear_cache()


@pytest.fixture(autouse=True)
def wrappers() -> Iterator[None]:
    """Fail the test that leaves a wrapper of statements behind, in place of one that runs later."""
    yield
    left = connection.execute_wrappers
    connection.execute_wrappers = []
    assert not left


@pytest.fixture
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let one such test run at a time: it opens tens of connections, and PostgreSQL has a hundred
    for all processes.
    """
    with (tmp_path_factory.getbasetemp().parent / "crowd.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def deferring(monkeypatch: pytest.MonkeyPatch) -> Deferring:
    """Return a queue of settles without a thread, in place of the process's own: a test calls
    attempt().
    """
    queue = Deferring()
    monkeypatch.setattr(queue, "_start", lambda: None)
    monkeypatch.setattr("django_idempotency.engine.lease.deferring", queue)
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


@pytest.fixture
def observed(settings: Settings) -> Iterator[Observed]:
    """Let every policy observe, and collect what that reports."""
    settings.IDEMPOTENCY = OBSERVE
    found = Observed()
    signals.observed.connect(found.note)
    signals.unguarded.connect(found.note_unguarded)
    yield found
    signals.observed.disconnect(found.note)
    signals.unguarded.disconnect(found.note_unguarded)
