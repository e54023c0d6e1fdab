"""An operation that fetch.js sends from a headless Chromium, with tabs that are reloaded, closed
and doubled: `make browser`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contrib.forms import till
from tests.contrib.forms.till import paid

from .conftest import Window

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.slow,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("tests.contrib.forms.till"),
]

#: Pays for a thing. Returns the status and the row, or the error's name.
PAY = """([what, options]) => djangoIdempotency.send("/pay/", { method: "POST", body: JSON.stringify({ what }) },
    { operation: what, base: 50, ...options }).then(async (response) => [response.status, (await response.json()).id],
    (error) => error.name)"""
PENDING = "djangoIdempotency.pending().map(({ operation }) => operation)"
TILL = "/till/"


@pytest.fixture(autouse=True)
def _open_gate() -> Iterator[None]:
    till.gate.set()
    yield
    till.gate.set()


def pay(page: Any, what: str, **options: Any) -> Any:
    return page.evaluate(PAY, [what, options])


def lose(page: Any) -> None:
    """Lose the response to the next payment, which is made."""

    def cut(route: Any) -> None:
        route.fetch()
        route.abort()

    page.context.route("**/pay/", cut, times=1)


def another(page: Any) -> Any:
    """Open a tab of the same window."""
    opened = page.context.new_page()
    opened.goto(page.url)
    return opened


@pytest.mark.parametrize("url", [TILL, "/till/?module"])
def test_a_retry(window: Window, url: str) -> None:
    """A lost response is asked for again at once, and then the key is gone; as a classic script and
    as a module.
    """
    page = window(url)
    lose(page)
    status, row = pay(page, "tea")
    assert (status, paid(), page.evaluate(PENDING)) == (201, ["tea"], [])
    assert pay(page, "tea")[1] != row  # the next one
    assert paid() == ["tea", "tea"]


def test_a_reload(window: Window) -> None:
    """The key is still there, and what is sent again is the same payment."""
    page = window(TILL)
    lose(page)
    assert pay(page, "tea", retries=0) == "TypeError"
    page.reload()
    assert page.evaluate(PENDING) == ["tea"]
    assert pay(page, "tea")[0] == 201
    assert (paid(), page.evaluate(PENDING)) == (["tea"], [])


def test_a_closed_tab(window: Window) -> None:
    """A tab is closed while its payment is made: another one gets its result."""
    page = window(TILL)
    till.gate.clear()
    with page.expect_request("**/pay/"):
        page.evaluate(
            "([what]) => void djangoIdempotency.send('/pay/', { method: 'POST', body: what })",
            ['{"what": "tea"}'],
        )
    opened = another(page)
    page.close()
    till.gate.set()
    sent = (
        "djangoIdempotency.send('/pay/', { method: 'POST', body: '{\"what\": \"tea\"}' "
        "}).then(({ status }) => status)"
    )
    assert len(opened.evaluate(PENDING)) == 1
    assert opened.evaluate(sent) == 201
    assert (paid(), opened.evaluate(PENDING)) == (["tea"], [])


@pytest.mark.parametrize("locks", [True, False])
def test_two_tabs_one_after_the_other(window: Window, locks: bool) -> None:
    """The second one sends the same payment while the first is made: both get one result.

    Without locks, too.
    """
    page = window(TILL)
    opened = another(page)
    for each in (page, opened):
        if not locks:
            each.evaluate("Object.defineProperty(navigator, 'locks', { value: undefined })")
    till.gate.clear()
    with page.expect_request("**/pay/"):
        page.evaluate(f"(given) => {{ window.first = ({PAY})(given) }}", ["tea", {}])
    with opened.expect_request("**/pay/"):
        opened.evaluate(f"(given) => {{ window.second = ({PAY})(given) }}", ["tea", {}])
    till.gate.set()
    assert page.evaluate("window.first") == opened.evaluate("window.second") != "TypeError"
    assert paid() == ["tea"]
    assert opened.evaluate(PENDING) == []


def test_two_tabs_at_the_same_instant(window: Window) -> None:
    """Whichever comes first, both send its key, twenty times; of a renderer process each."""
    page = window(TILL)
    opened = another(page)
    assert page.evaluate("navigator.locks !== undefined")
    things = [f"tea {number}" for number in range(20)]
    at = time.time() * 1000 + 500
    start = f"""([things, at]) => {{ window.all = Promise.all(things.map((what, number) => new Promise((wake) =>
        setTimeout(wake, at + 50 * number - Date.now())).then(() => ({PAY})([what, {{}}])))) }}"""
    for each in (page, opened):
        each.evaluate(start, [things, at])
    assert page.evaluate("window.all") == opened.evaluate("window.all")
    assert paid() == sorted(things)
