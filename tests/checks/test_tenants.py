"""Tenants without a realm, and a ready-made realm where it cannot work."""

from __future__ import annotations

import pytest
from django.apps import apps as registered
from django.db import connections
from pytest_django import Settings

from django_idempotency.checks.databases import check_databases
from django_idempotency.checks.settings import check_left_out, check_left_out_deployed
from django_idempotency.contrib.tenants.checks import check_hosts, check_tenants

from .conftest import Configure, hints

SCHEMA, HOST = (
    "django_idempotency.contrib.tenants.schema",
    "django_idempotency.contrib.tenants.host",
)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the apps pretended to be installed, beside the real ones."""
    more: set[str] = set()
    known = registered.is_installed
    monkeypatch.setattr(registered, "is_installed", lambda name: name in more or known(name))
    return more


def test_a_project_without_tenants(configure: Configure, settings: Settings) -> None:
    """A project without tenants is silent; ALLOWED_HOSTS of "*" does not imply tenants."""
    settings.ALLOWED_HOSTS = ["*", "example.com"]
    assert [*check_tenants(), *check_hosts()] == []


@pytest.mark.parametrize("app", ["django_tenants", "tenant_schemas"])
def test_a_schema_per_tenant_without_a_realm(
    configure: Configure, installed: set[str], app: str
) -> None:
    """W068 names the schema, and says what to type."""
    installed.add(app)
    assert f'"REALM": "{SCHEMA}"' in hints(check_tenants())["W068"]
    configure(REALM=HOST)
    assert list(check_tenants()) == []


def test_whoever_needs_the_app_has_not_installed_it(
    configure: Configure, settings: Settings, installed: set[str]
) -> None:
    """Its checks are run in each project."""
    assert "django_idempotency.contrib.tenants" not in settings.INSTALLED_APPS
    installed.add("django_tenants")
    assert list(hints(check_left_out())) == ["W068"]
    installed.clear()
    settings.ALLOWED_HOSTS = [".example.org"]
    assert check_left_out() == []
    assert list(hints(check_left_out_deployed())) == ["W068"]


def test_a_wildcard_domain_without_a_realm(
    configure: Configure, settings: Settings, installed: set[str]
) -> None:
    """W068 at --deploy names the host: once for many of them, and not beside the warning for
    schemas.
    """
    settings.ALLOWED_HOSTS = ["example.com", ".example.org", ".example.net"]
    assert list(check_tenants()) == []
    (found,) = check_hosts()
    assert f'"REALM": "{HOST}"' in hints([found])["W068"]
    assert '".example.org"' in found.msg
    configure(REALM=HOST)
    assert list(check_hosts()) == []
    configure()
    installed.add("django_tenants")
    assert list(check_hosts()) == []


def test_a_schema_that_no_connection_has(
    configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E063: the backend is not that of django-tenants."""
    configure(REALM=SCHEMA)
    assert 'DATABASES["default"]["ENGINE"]' in hints(check_tenants())["E063"]
    monkeypatch.setattr(connections["default"], "schema_name", "public", raising=False)
    assert list(check_tenants()) == []


SOMEWHERE_ELSE = type("Router", (), {"allow_migrate": lambda *_, **__: False})


@pytest.mark.parametrize(
    ("named", "codes"),
    [
        ((["django_idempotency"], []), {"W002"}),
        ((["django_idempotency"], ["django_idempotency"]), {"W002"}),
        (([], ["django_idempotency"]), {"W069"}),
        (([], ["django_idempotency.apps.IdempotencyConfig"]), {"W069"}),
        (([], []), {"W002"}),
    ],
)
def test_where_the_table_is(
    configure: Configure,
    settings: Settings,
    installed: set[str],
    named: tuple[list[str], list[str]],
    codes: set[str],
) -> None:
    """W069 if the public schema has no table, in place of W002, whose router could not help."""
    installed.add("django_tenants")
    configure(REALM=HOST)
    settings.SHARED_APPS, settings.TENANT_APPS = named
    settings.DATABASE_ROUTERS = [SOMEWHERE_ELSE()]
    assert hints([*check_tenants(), *check_databases()]).keys() == codes


def test_settings_come_first(configure: Configure, settings: Settings, installed: set[str]) -> None:
    """Broken settings are the only thing reported."""
    installed.add("django_tenants")
    settings.ALLOWED_HOSTS = [".example.org"]
    configure(TTL=-1)
    assert [*check_left_out(), *check_left_out_deployed()] == []
