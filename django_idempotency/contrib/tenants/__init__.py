"""Ready-made functions for the setting REALM: the tenant is the schema of django-tenants, or the
host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings
from django.http.request import split_domain_port

from ...errors import ConfigurationError

if TYPE_CHECKING:
    from django.http import HttpRequest


def schema(_request: HttpRequest | None) -> str:
    """Return the schema of the database connection, as django-tenants has set it."""
    from django.db import connections  # not above: importing the package must not need a database

    alias = tenants_alias()
    found = getattr(connections[alias], "schema_name", None)
    if not isinstance(found, str):
        raise ConfigurationError(
            "tenants.schema needs the database backend of django-tenants: type "
            f'DATABASES["{alias}"]["ENGINE"] = '
            '"django_tenants.postgresql_backend".'
        )
    return found


def tenants_alias() -> str:
    """Return the database whose schemas are the tenants, as django-tenants finds it."""
    return str(getattr(settings, "TENANT_DB_DATABASE", "default"))


def host(request: HttpRequest | None) -> str:
    """Return the host that a request was sent to, in lower case, without its port and the dot of a
    full name.

    A call has none: see realm().
    """
    if request is None:
        raise ConfigurationError(
            "tenants.host needs a request, and there is none. Call the function inside: "
            "with django_idempotency.realm(…)."
        )
    return split_domain_port(request.get_host())[0]
