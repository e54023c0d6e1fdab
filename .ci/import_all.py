"""Import every module of the installed wheel without any extra. .ci/run starts it in an empty
environment.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys

import django
from django.conf import settings

import django_idempotency

#: The optional packages, given as arguments. Only a module that is an entry point for one may need
#: it.
EXTRAS = set(sys.argv[1:]) - {"asgiref", "django", "jmespath"}

assert "django_idempotency.models" not in sys.modules
if here := sorted(extra for extra in EXTRAS if importlib.util.find_spec(extra)):
    sys.exit(f"This environment is not empty: {', '.join(here)}.")

settings.configure(
    INSTALLED_APPS=[
        *(
            f"django.contrib.{app}"
            for app in ("admin", "auth", "contenttypes", "messages", "sessions")
        ),
        "django_idempotency",
        "django_idempotency.contrib.client",
        "django_idempotency.contrib.outbox",
        "django_idempotency.contrib.audit",
        "django_idempotency.contrib.at_rest",
        "django_idempotency.contrib.steps",
        "django_idempotency.contrib.suspects",
        "django_idempotency.contrib.forms",
        "django_idempotency.contrib.publishing",
    ],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    SECRET_KEY="nobody's",
)
django.setup()

imported, wanting = [], []
for module in pkgutil.walk_packages(
    django_idempotency.__path__, "django_idempotency.", onerror=lambda _: None
):
    try:
        importlib.import_module(module.name)
        imported.append(module.name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in EXTRAS:
            raise
        wanting.append(f"{module.name} ({error.name})")

print(f"{len(imported)} modules imported; these want an extra: {', '.join(wanting) or 'none'}.")
