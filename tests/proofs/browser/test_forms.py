"""What a person does with a form, in a headless Chromium: `make browser`."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.contrib.forms import shop
from tests.contrib.forms.shop import orders

from .conftest import MODULES, Window

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.slow,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("tests.contrib.forms.shop"),
    pytest.mark.skipif(not MODULES.exists(), reason="make browser fetches htmx and Turbo"),
    pytest.mark.usefixtures("scripts"),
]

#: With the script, without one, and with the page fetched anew after Back.
PLAIN = pytest.mark.parametrize(
    ("url", "javascript"),
    [("/order/", True), ("/fresh/", True), ("/order/", False)],
    ids=["script", "fresh", "no script"],
)
TURBO = "/turbo/"


def fill(page: Any, item: str = "tea", count: str = "1") -> Any:
    page.fill("[name=item]", item)
    page.fill("[name=count]", count)
    return page


def send(page: Any) -> None:
    """Send the form, and wait until the order is there."""
    page.click("button")
    done(page)


def done(page: Any) -> None:
    """Wait for the result.

    A click that another has overtaken is no failure, as it would be to wait_for_url().
    """
    page.get_by_role("heading", name="Ordered").wait_for()


def back(page: Any) -> Any:
    """Go back, and wait for the form."""
    page.evaluate("history.back()")
    page.wait_for_selector("button")
    return page


def heading(page: Any) -> str:
    return str(page.inner_text("h1"))


def click_twice(page: Any) -> None:
    """Click again while the first request is held, and let both go on.

    The mouse does not wait for a page, as a hand does.
    """
    box = page.locator("button").bounding_box()
    place = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    shop.began.clear()
    shop.gate.clear()
    page.mouse.click(*place)
    assert shop.began.wait(10)
    page.mouse.click(*place)
    shop.gate.set()


@PLAIN
def test_a_double_click(window: Window, url: str, javascript: bool) -> None:
    """One order, and the person sees its result."""
    page = fill(window(url, javascript=javascript))
    click_twice(page)
    done(page)
    assert heading(page) == "Ordered: 1"
    assert len(page.posts) == 2
    assert orders() == ["tea 1"]


@pytest.mark.parametrize(
    ("url", "javascript"), [("/order/", True), ("/order/", False), (TURBO, True)]
)
def test_back_and_send_again(window: Window, url: str, javascript: bool) -> None:
    """The same order."""
    page = fill(window(url, javascript=javascript))
    for _ in range(3):
        send(page)
        fill(back(page))
    assert len(page.posts) == 3
    assert orders() == ["tea 1"]


def test_back_to_a_page_that_is_fetched_anew(window: Window) -> None:
    """It has another key, and the script still knows which was sent."""
    page = fill(window("/fresh/"))
    page.evaluate("addEventListener('unload', () => {})")  # the browser does not keep such a page
    first = page.input_value("[name=idempotency_key]")
    send(page)
    fill(back(page))
    assert page.input_value("[name=idempotency_key]") != first
    send(page)
    assert orders() == ["tea 1"]


def test_a_reload_of_the_form(window: Window) -> None:
    """The same order, unless it is edited."""
    page = fill(window("/order/"))
    send(page)
    back(page).reload()
    send(fill(page))
    assert orders() == ["tea 1"]
    back(page).reload()
    send(fill(page, count="2"))
    assert orders() == ["tea 1", "tea 2"]


@pytest.mark.parametrize("javascript", [True, False])
def test_a_reload_of_the_response(window: Window, javascript: bool) -> None:
    """The browser sends the form again: the same page."""
    page = fill(window("/one-page/", javascript=javascript))
    page.click("button")
    page.wait_for_load_state()
    shown = page.content()
    page.reload()
    assert page.content() == shown
    assert len(page.posts) == 2
    assert orders() == ["tea 1"]


@pytest.mark.parametrize(
    ("url", "javascript"), [("/order/", True), ("/order/", False), (TURBO, True)]
)
def test_a_corrected_form(window: Window, url: str, javascript: bool) -> None:
    """It goes through, from the page with the errors and, if it can, from the one before."""
    page = fill(window(url, javascript=javascript), item="nothing")
    page.click("button")
    page.wait_for_selector(".errorlist")
    send(fill(page))
    assert orders() == ["tea 1"]


# Turbo shows a 422 in place.
@pytest.mark.parametrize(("url", "javascript"), [("/order/", True), ("/turbo/", False)])
def test_a_form_that_is_corrected_after_back(window: Window, url: str, javascript: bool) -> None:
    """The script gets it another key; without that, its own is free after a 422."""
    page = fill(window(url, javascript=javascript), item="nothing")
    page.click("button")
    page.wait_for_selector(".errorlist")
    send(fill(back(page)))
    assert orders() == ["tea 1"]


@pytest.mark.parametrize("url", ["/order/", "/fresh/", TURBO])
def test_back_and_edited(window: Window, url: str) -> None:
    """Another order; also the third one, and a click on it too many."""
    page = fill(window(url))
    send(page)
    for count in ("2", "3"):
        fill(back(page), count=count)
        click_twice(page)
        done(page)
    assert orders() == ["tea 1", "tea 2", "tea 3"]


def test_an_answer_that_is_no_key(window: Window) -> None:
    """It changes nothing; and a form that the browser then stops, since it is invalid by now, asks
    again the next time.
    """
    page = fill(window("/order/"))
    send(page)
    fill(back(page), count="2")
    page.evaluate("""() => {
        const real = window.fetch, item = document.querySelector("[name=item]");
        window.fetch = async () => {
            window.fetch = real;
            item.value = "";
            return Response.json({ key: 7 });
        };
    }""")
    page.click("button")
    page.wait_for_function("document.querySelector('[name=item]').value === ''")
    send(fill(page, count="3"))
    assert orders() == ["tea 1", "tea 3"]


def test_a_script_that_sends_the_form_itself(window: Window) -> None:
    """It cancels the event, and what it sends counts as sent: edited, the form is another order."""
    page = fill(window("/order/"))
    page.evaluate("""() => document.addEventListener("submit", (event) => {
        event.preventDefault();
        fetch(location.href, { method: "POST", body: new FormData(event.target) });
    })""")
    for count in ("1", "2"):
        fill(page, count=count)
        with page.expect_response("**/done/"):
            page.click("button")
    assert orders() == ["tea 1", "tea 2"]


def test_back_and_edited_without_a_script(window: Window) -> None:
    """A page says what happened, and leads to no other key: a person looks first, and then opens
    the form as before.
    """
    page = fill(window("/order/", javascript=False))
    send(page)
    fill(back(page), count="2")
    page.click("button")
    assert heading(page) == "This form was sent before, with other content"
    assert page.get_by_role("link").count() == 0
    page.goto("/order/")
    send(fill(page, count="2"))
    assert orders() == ["tea 1", "tea 2"]


@pytest.mark.parametrize(
    ("url", "javascript"), [("/order/", True), ("/order/", False), (TURBO, True)]
)
def test_a_new_order(window: Window, url: str, javascript: bool) -> None:
    """The form, opened again, is another order with the same content."""
    page = fill(window(url, javascript=javascript))
    send(page)
    page.click("text=Another")
    page.wait_for_selector("button")
    send(fill(page))
    assert orders() == ["tea 1", "tea 1"]


@pytest.mark.parametrize("version", [2, 4])
def test_htmx(window: Window, version: int) -> None:
    """A double click is one order; the form stays, and its next submission is another one."""
    page = fill(window(f"/htmx{version}/"))
    click_twice(page)
    result = page.locator("#result")
    result.get_by_text("Ordered: 1").wait_for()
    page.wait_for_load_state("networkidle")
    assert orders() == ["tea 1"]
    page.click("button")
    result.get_by_text("Ordered: 2").wait_for()
    page.fill("[name=count]", "2")
    page.click("button")
    result.get_by_text("Ordered: 3").wait_for()
    assert orders() == ["tea 1", "tea 1", "tea 2"]


@pytest.mark.parametrize("version", [2, 4])
def test_htmx_without_a_response(window: Window, version: int) -> None:
    """A request that was cut off is repeated under its key."""
    page = fill(window(f"/htmx{version}/"))

    def cut(route: Any) -> None:
        route.fetch()
        route.abort()

    page.route(re.compile("htmx./$"), cut, times=1)
    page.click("button")
    page.wait_for_load_state("networkidle")
    page.click("button")
    page.locator("#result").get_by_text("Ordered: 1").wait_for()
    assert orders() == ["tea 1"]


def test_the_key_cannot_be_renewed(window: Window) -> None:
    """Without a connection to the server's tokens the form goes out, and the server's page says
    what is the matter.
    """
    page = fill(window("/order/"))
    send(page)
    back(page)
    page.route("**/idempotency-tokens", lambda route: route.abort())
    fill(page, count="2")
    page.click("button")
    page.get_by_text("sent before, with other content").first.wait_for()
    assert orders() == ["tea 1"]


def test_what_is_kept(window: Window) -> None:
    """The window keeps digests, and nothing that was typed."""
    page = fill(window("/order/"), item="secret tea")
    send(page)
    kept = page.evaluate("JSON.stringify(sessionStorage)")
    assert "idempotency:" in kept
    assert "secret" not in kept


def test_a_content_security_policy(window: Window) -> None:
    """Nothing of the field or the script is inline."""
    page = window("/strict/")
    refused: list[str] = []
    page.on("console", lambda message: refused.append(message.text))
    page.reload()
    send(fill(page))
    fill(back(page), count="2")
    send(page)
    assert orders() == ["tea 1", "tea 2"]
    assert refused == []
