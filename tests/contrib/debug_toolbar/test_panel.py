"""The panel, in the real toolbar: what it says of a request under each verdict, and that it costs
nothing when it is off.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from django.dispatch import Signal

from django_idempotency import signals
from django_idempotency.core.statuses import HeaderStatus
from tests.entry_points.conftest import KEY, Connect, Sender, connect  # noqa: F401 - a fixture

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("tests.contrib.debug_toolbar.urls"),
    pytest.mark.any_database,
]


@pytest.fixture
# The fixture.
def send(settings: Any, user: User, connect: Connect) -> Iterator[Sender]:  # noqa: F811
    settings.INSTALLED_APPS = [*django_settings.INSTALLED_APPS, "debug_toolbar"]
    settings.MIDDLEWARE = [
        "debug_toolbar.middleware.DebugToolbarMiddleware",
        *django_settings.MIDDLEWARE,
    ]
    settings.DEBUG_TOOLBAR_PANELS = ["django_idempotency.contrib.debug_toolbar.IdempotencyPanel"]
    settings.DEBUG_TOOLBAR_CONFIG = {
        "SHOW_TOOLBAR_CALLBACK": lambda request: True,
        "IS_RUNNING_TESTS": False,
    }
    from debug_toolbar.toolbar import DebugToolbar  # not above: the app must be installed

    DebugToolbar._panel_classes = None  # the toolbar keeps its panels per process
    toolbar_store().clear()
    yield connect("/decorated/", user)
    DebugToolbar._panel_classes = None


def toolbar_store() -> Any:
    from debug_toolbar.store import get_store  # see above

    return get_store()


def shown() -> dict[str, Any]:
    """Return what the panel has kept of the latest request."""
    request_id = list(toolbar_store().request_ids())[-1]
    found: dict[str, Any] = toolbar_store().panel(request_id, "IdempotencyPanel")
    return found | {
        "facts": dict(found["facts"]),
        "names": [event["name"] for event in found["events"]],
    }


def test_a_first_request_and_its_replay(send: Sender) -> None:
    """Each shows the guard, the verdict, the attempt, the statements on the records, and what a
    retry gets.
    """
    assert send({"how": "201"}).status_code == 201
    first = shown()
    assert (first["status"], first["names"]) == ("created", ["claimed", "completed"])
    facts = first["facts"]
    assert (facts["entry point"], facts["guarantee"], facts["store"], facts["attempt"]) == (
        *("decorator", "atomic", "ORMStore", 1),
    )
    # PostgreSQL combines the lock with BEGIN, and the settle with COMMIT.
    assert first["statements"] >= 2
    assert KEY not in str(first)
    send({"how": "201"})
    replay = shown()
    assert (replay["status"], replay["names"]) == ("replayed", ["replayed"])
    assert replay["facts"]["original request"] == facts["original request"]
    assert 1 <= replay["statements"] <= 2


@pytest.mark.parametrize(
    ("how", "status", "names"),
    [("403", "released", ["claimed", "released"]), ("503", "failed", ["claimed", "released"])],
)
def test_why_it_is_not_stored(send: Sender, how: str, status: str, names: list[str]) -> None:
    send({"how": how})
    found = shown()
    assert (found["status"], found["names"]) == (status, names)
    assert found["meaning"].startswith("Not stored")


def test_a_request_without_a_key(send: Sender) -> None:
    send({"how": "201"}, key=None)
    found = shown()
    assert (found["names"], found["statements"]) == ([], 0)


def test_a_refusal(send: Sender) -> None:
    """Another body under the key, and a key that is malformed."""
    send({"how": "201"})
    send({"how": "201", "other": "body"})
    assert shown()["status"] == "mismatch"
    send({"how": "201"}, key="a,b")
    assert shown()["status"] == "refused"


def test_it_is_rendered(send: Sender) -> None:
    """The page has the facts as text: nothing that was sent becomes markup."""
    send({"how": "201"}, headers={"X-Request-ID": "<script>alert(1)</script>"})
    from debug_toolbar.toolbar import StoredDebugToolbar

    request_id = list(toolbar_store().request_ids())[-1]
    panel = StoredDebugToolbar.from_store(request_id).get_panel_by_id("IdempotencyPanel")
    content = str(panel.content)
    HTMLParser().feed(content)
    assert "<script>" not in content
    assert "Stored: a retry gets this response." in content
    assert panel.nav_subtitle == "created"


def test_nothing_stays_connected(send: Sender) -> None:
    """After the request, no signal has a receiver of the panel."""
    before = {
        name: len(each.receivers)
        for name, each in vars(signals).items()
        if isinstance(each, Signal)
    }
    send({"how": "201"})
    assert {
        name: len(each.receivers)
        for name, each in vars(signals).items()
        if isinstance(each, Signal)
    } == before


def test_every_status_has_a_meaning() -> None:
    from django_idempotency.contrib.debug_toolbar.panel import MEANINGS

    assert set(MEANINGS) == {*HeaderStatus, None}


def test_off_it_is_not_imported() -> None:
    """A project without the panel imports neither it nor the toolbar."""
    code = (
        "import django, sys; django.setup(); import testproject.urls; assert 'debug_toolbar' "
        "not in sys.modules; assert 'django_idempotency.contrib.debug_toolbar' not in "
        "sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
