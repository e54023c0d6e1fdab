"""Settings of the testproject.

The environment chooses the database: DATABASE=sqlite, postgresql, mariadb or mysql.
"""

from __future__ import annotations

import json
import os
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

BASE_DIR = Path(__file__).resolve().parent.parent

# A demo has no secrets.
SECRET_KEY = "demo-only: anyone who reads this repository knows it"  # noqa: S105
DEBUG = os.environ.get("DEBUG") == "1"
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]", "testserver"]

ROOT_URLCONF = "testproject.urls"
WSGI_APPLICATION = "testproject.wsgi.application"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "rest_framework.authtoken",
    "django_idempotency",
    "django_idempotency.contrib.adrf",
    "django_idempotency.contrib.client",
    "django_idempotency.contrib.forms",
    "django_idempotency.contrib.graphql",
    "django_idempotency.contrib.modern_rest",
    "django_idempotency.contrib.ninja",
    "django_idempotency.contrib.outbox",
    "django_idempotency.contrib.publishing",
    "django_idempotency.contrib.at_rest",
    "django_idempotency.contrib.audit",
    "django_idempotency.contrib.steps",
    "django_idempotency.contrib.suspects",
    "django_idempotency.contrib.business_key",
    "testproject.payments",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    # last, behind everything that may refuse a request
    "django_idempotency.middleware.IdempotencyMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "rest_framework.authentication.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}

# The app is there for its tables; a test that is about the trail switches it on.
SILENCED_SYSTEM_CHECKS = ["django_idempotency.W111"]

LOGIN_URL = "admin:login"

BANK_URL = os.environ.get("BANK_URL", "")  # the demo's own address
IDEMPOTENCY: dict[str, Any] = {}
if "METRICS" in os.environ:  # the path of a meter, for the demo
    IDEMPOTENCY["METRICS"] = os.environ["METRICS"]
if "AUDIT" in os.environ:
    IDEMPOTENCY["AUDIT"] = True
if "SUSPECTS" in os.environ:  # JSON, for the screenshots
    IDEMPOTENCY["SUSPECTS"] = json.loads(os.environ["SUSPECTS"])
if BANK_URL:
    IDEMPOTENCY["PROVIDERS"] = {
        "bank": {"LIFETIME": timedelta(hours=24), "CLIENT": "testproject.payments.bank.bank_client"}
    }

# ---- The database
# --------------------------------------------------------------------------------------------------

DATABASE = os.environ.get("DATABASE", "sqlite")
# Two simultaneous test runs need two databases.
TEST_NAME = "test_idempotency" + os.environ.get("TEST_DATABASE_SUFFIX", "")


def place(part: str, default: str) -> str:
    """Return POSTGRESQL_HOST, MARIADB_PORT and similar values from the environment.

    OPTIONS are JSON.
    """
    return os.environ.get(f"{DATABASE.upper()}_{part}", default)


def sqlite() -> dict[str, Any]:
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": BASE_DIR / "db.sqlite3",
        "OPTIONS": {
            "init_command": "PRAGMA journal_mode=WAL",  # readers never wait for the writer
            # queue for the write lock at BEGIN; an upgrade in the middle fails at once
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
        },
        # A file: connections of other threads and processes must see the same database, and WAL
        # needs one.
        "TEST": {"NAME": BASE_DIR / f"{TEST_NAME}.sqlite3"},
    }


def postgresql() -> dict[str, Any]:
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "postgres",
        "HOST": place("HOST", "127.0.0.1"),
        "PORT": place("PORT", "5432"),
        "USER": place("USER", "postgres"),
        "PASSWORD": place("PASSWORD", ""),
        "OPTIONS": {"connect_timeout": 5, **json.loads(place("OPTIONS", "{}"))},
        "TEST": {"NAME": TEST_NAME},
    }


def innodb() -> dict[str, Any]:
    options: dict[str, Any] = {"charset": "utf8mb4", "connect_timeout": 5}
    # Mysqlclient if it is installed, otherwise the pure Python driver under its name.
    if find_spec("MySQLdb") is None:
        import pymysql

        pymysql.install_as_MySQLdb()
        # Otherwise it reads all certificates of the system at each connection, twenty times as long
        # as connecting takes.
        options["ssl_disabled"] = True
    return {
        "ENGINE": "django.db.backends.mysql",
        "NAME": "test",
        "HOST": place("HOST", "127.0.0.1"),
        # Theirs is the same: MySQL's is another here, so that both can run.
        "PORT": place("PORT", {"mariadb": "3306", "mysql": "3307"}[DATABASE]),
        "USER": place("USER", "root"),
        "PASSWORD": place("PASSWORD", ""),
        "OPTIONS": options,
        "TEST": {"NAME": TEST_NAME, "CHARSET": "utf8mb4"},
    }


KINDS = {"sqlite": sqlite, "postgresql": postgresql, "mariadb": innodb, "mysql": innodb}
DATABASES = {
    "default": {
        **KINDS[DATABASE](),
        "ATOMIC_REQUESTS": os.environ.get("ATOMIC_REQUESTS") == "1",
        # wsgi.py keeps connections open because its threads live long. Under ASGI every request has
        # its own thread.
        "CONN_MAX_AGE": int(os.environ.get("CONN_MAX_AGE", "0")),
        "CONN_HEALTH_CHECKS": True,
    }
}
if "DATABASE_NAME" in os.environ:  # lets a test start a server on its own test database
    DATABASES["default"]["NAME"] = os.environ["DATABASE_NAME"]

DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# ---- Messages
# --------------------------------------------------------------------------------------------------

RABBITMQ_URL = os.environ.get("RABBITMQ_URL", "amqp://guest:guest@127.0.0.1:5672/%2F")
CELERY_BROKER_URL = RABBITMQ_URL.partition("?")[0]  # the rest is for pika
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TASK_DEFAULT_EXCHANGE_TYPE = (
    "topic"  # a retry then waits in the broker, not in a worker's memory
)
# A message or a retry that is not accepted raises.
CELERY_BROKER_TRANSPORT_OPTIONS = {"confirm_publish": True}

WEBHOOK_SECRET = "whsec_ZGVtbyBvbmx5OiBldmVyeWJvZHkga25vd3MgaXQ="  # noqa: S105 - the same

# ---- The rest
# --------------------------------------------------------------------------------------------------

USE_TZ = True
TIME_ZONE = "UTC"
STATIC_URL = "static/"

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {levelname} {name}: {message}", "style": "{"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": os.environ.get("LOG_LEVEL", "WARNING")},
    # Django's own handlers would print only with DEBUG, or send mail.
    "loggers": {"django": {"handlers": [], "propagate": True}},
}
