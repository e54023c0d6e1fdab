"""A headless Chromium at a live server, with the scripts of others that `make browser` has
fetched.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

from tests.contrib.forms import shop

#: Where `make browser` puts the packages of package.json.
MODULES = Path(__file__).parents[3] / ".cache" / "browser" / "node_modules"
SCRIPTS = {
    "htmx2.js": "htmx2/dist/htmx.min.js",
    "htmx4.js": "htmx4/dist/htmx.min.js",
    "turbo.js": "@hotwired/turbo/dist/turbo.es2017-umd.js",
}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")

#: Opens a page of the shop: `window("/order/")`.
Window = Callable[..., Any]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    with sync_api.sync_playwright() as playwright, pytest.MonkeyPatch.context() as patch:
        # Playwright's own loop runs in this thread, whose ORM calls wait for nothing of it.
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        sandbox = [] if os.geteuid() else ["--no-sandbox"]  # Chromium has no sandbox as root
        # As people have it: after Back the page is there as it was left.
        browser = playwright.chromium.launch(
            executable_path=found,
            args=sandbox,
            ignore_default_args=["--disable-back-forward-cache"],
        )
        yield browser
        browser.close()


@pytest.fixture
def scripts(tmp_path: Path, settings: Settings) -> None:
    """Serve the scripts of others as static files."""
    for name, source in SCRIPTS.items():
        shutil.copy(MODULES / source, tmp_path / name)
    settings.STATICFILES_DIRS = [tmp_path]


@pytest.fixture
def window(chromium: Any, live_server: Any, user: User) -> Iterator[Window]:
    """Return a function that opens a page, logged in. `javascript=False` turns scripts off."""
    client = Client()
    client.force_login(user)
    session = {
        "name": "sessionid",
        "value": client.cookies["sessionid"].value,
        "url": live_server.url,
    }
    contexts: list[Any] = []
    shop.began.clear()

    def open_window(url: str, *, javascript: bool = True) -> Any:
        context = chromium.new_context(base_url=live_server.url, java_script_enabled=javascript)
        contexts.append(context)
        context.add_cookies([session])
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.posts = []
        page.on(
            "request",
            lambda request: page.posts.append(request.url) if request.method == "POST" else None,
        )
        page.goto(url)
        return page

    yield open_window
    shop.gate.set()
    for context in contexts:
        context.close()
