"""django-cors-headers without our headers, and the tuples that add them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from django.apps import apps as registered
from pytest_django import Settings

from django_idempotency import conf
from django_idempotency.checks.settings import check_settings
from django_idempotency.contrib.cors import ALLOW_HEADERS, EXPOSE_HEADERS
from django_idempotency.contrib.cors.checks import check_cors

from .conftest import Configure, hints

DEFAULT_HEADERS = (
    "accept",
    "authorization",
    "content-type",
    "user-agent",
    "x-csrftoken",
    "x-requested-with",
)


@pytest.fixture
def cors(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> Settings:
    """Pretend that django-cors-headers is installed, and return the settings."""
    known = registered.is_installed
    monkeypatch.setattr(
        registered, "is_installed", lambda name: name == "corsheaders" or known(name)
    )
    return settings


def test_without_it() -> None:
    """A project without django-cors-headers is not asked."""
    assert check_cors() == []


def test_nothing_is_set(configure: Configure, cors: Settings) -> None:
    """W086 says for each setting what is missing, and the line to type."""
    found = check_cors()
    assert [message.id for message in found] == ["django_idempotency.W086"] * 2
    assert "lacks idempotency-key" in found[0].msg
    assert "CORS_ALLOW_HEADERS = (*default_headers, *ALLOW_HEADERS)" in str(found[0].hint)
    assert "Idempotency-Status" in found[1].msg
    assert "CORS_EXPOSE_HEADERS = [*EXPOSE_HEADERS]" in hints(found[1:])["W086"]


def test_what_it_says_is_enough(configure: Configure, cors: Settings) -> None:
    """With the lines of the hints there is nothing more to say, in any case of the names."""
    cors.CORS_ALLOW_HEADERS = (*DEFAULT_HEADERS, *ALLOW_HEADERS)
    cors.CORS_EXPOSE_HEADERS = [name.lower() for name in EXPOSE_HEADERS]
    assert check_cors() == []
    cors.CORS_ALLOW_HEADERS = cors.CORS_EXPOSE_HEADERS = ["*"]
    assert check_cors() == []


def test_a_wildcard_with_credentials(configure: Configure, cors: Settings) -> None:
    """Browsers take it for the name of a header then."""
    cors.CORS_ALLOW_CREDENTIALS = True
    cors.CORS_ALLOW_HEADERS = cors.CORS_EXPOSE_HEADERS = ["*"]
    assert [message.id for message in check_cors()] == ["django_idempotency.W086"] * 2


def test_a_warning_about_the_settings(configure: Configure, cors: Settings) -> None:
    """Only settings that cannot be read silence the check."""
    configure(HEADER="X-Order-Key", PROFILE="stripe")
    assert [message.id for message in check_settings()] == ["django_idempotency.W087"]
    assert [message.id for message in check_cors()] == ["django_idempotency.W086"] * 2


def test_a_header_of_ones_own(configure: Configure, cors: Settings) -> None:
    """The name that the project has chosen is the one that must be allowed."""
    configure(HEADER="X-Order-Key")
    cors.CORS_ALLOW_HEADERS, cors.CORS_EXPOSE_HEADERS = ALLOW_HEADERS, EXPOSE_HEADERS
    (found,) = check_cors()
    assert "lacks x-order-key" in found.msg
    assert 'CORS_ALLOW_HEADERS = (…, "x-order-key")' in str(found.hint), (
        "the project's own names are lost"
    )


def test_the_headers_of_a_profile(configure: Configure, cors: Settings) -> None:
    """What the profile of the settings reads must be allowed, all of it."""
    configure(PROFILE="repeatability")
    cors.CORS_ALLOW_HEADERS, cors.CORS_EXPOSE_HEADERS = ALLOW_HEADERS, EXPOSE_HEADERS
    allow, expose = check_cors()
    assert (
        "lacks repeatability-request-id, repeatability-first-sent, repeatability-client-id:"
        in allow.msg
    )
    assert "lacks Repeatability-Result:" in expose.msg
    assert '[*EXPOSE_HEADERS, "Repeatability-Result", …]' in str(expose.hint)
    configure(PROFILE="square")  # a member of the body
    assert check_cors() == []


def test_wrong_settings_come_first(cors: Settings) -> None:
    """A HEADER that is none is reported elsewhere."""
    cors.IDEMPOTENCY = {"HEADER": 7}
    assert check_cors() == []


def test_a_part_of_it(configure: Configure, cors: Settings) -> None:
    """Only what is missing is named."""
    cors.CORS_ALLOW_HEADERS = ALLOW_HEADERS
    cors.CORS_EXPOSE_HEADERS = [name for name in EXPOSE_HEADERS if name != "Location"]
    (found,) = check_cors()
    assert "CORS_EXPOSE_HEADERS lacks Location:" in found.msg
    # Those that are set stay.
    assert "CORS_EXPOSE_HEADERS = [*EXPOSE_HEADERS, …]" in str(found.hint)


@pytest.mark.slow
def test_a_settings_module_imports_it(tmp_path: Path) -> None:
    """It is imported while the settings are being read."""
    (tmp_path / "site_settings.py").write_text(
        "from django_idempotency.contrib.cors import ALLOW_HEADERS, EXPOSE_HEADERS\n"
        "SECRET_KEY = 'x'\nCORS_ALLOW_HEADERS = ALLOW_HEADERS\nCORS_EXPOSE_HEADERS = "
        "EXPOSE_HEADERS\n"
    )
    script = (
        "import django; django.setup(); from django.conf import settings; "
        "print(settings.CORS_ALLOW_HEADERS[0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(conf.__file__).parents[1],
        env={"DJANGO_SETTINGS_MODULE": "site_settings", "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout.strip(), done.stderr) == ("idempotency-key", "")
