"""The docs' screenshots of the admin: `make screenshots` takes them of the demo on SQLite, in a
real Chromium.

    python -m tests.docs.screenshots [demo | steps]

The steps are those of the tutorial's shop, after its page was carried out.

Take them again after a change to the admin's pages; keys, times and addresses differ each time.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Locator, Page, sync_playwright

from testproject.demo.client import Client
from testproject.demo.server import HOST, Server, serving
from testproject.demo.stage import Cast, prepare

from .pages import DOCS
from .shop import opened

# CSS pixels: below this width, Django's admin uses its layout for phones.
WIDTH, HEIGHT = (
    1100,
    1600,
)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SUSPECTS = [
    {"model": "payments.Charge", "same": ["user", "amount", "currency"], "within": 300},
    {"model": "payments.Effect", "same": ["label"], "within": 300, "where": {"label": "payout"}},
]


def main(part: str = "") -> None:
    if part in ("", "demo"):
        of_the_demo()
    if part in ("", "steps"):
        of_the_steps()


def of_the_demo() -> None:
    os.environ["AUDIT"] = "1"  # for the timeline of a record
    os.environ["SUSPECTS"] = json.dumps(SUSPECTS)
    with tempfile.TemporaryDirectory(
        prefix="idempotency-screenshots-", ignore_cleanup_errors=True
    ) as folder:
        cast = prepare(Path(folder) / "demo.sqlite3")
        with serving(Path(folder) / "gunicorn.log") as server, browsing() as page:
            send_requests(server, cast)
            page.goto(f"{server.address}{cast.records}")
            log_in(page, "admin", cast.password)
            take(page, "admin-list", 640)
            page.click("#result_list th a:has-text('order-2042')")
            take(page, "admin-record")
            page.click("a:has-text('Release')")
            take(page, "admin-release")
            send_twice(server, cast)
            page.goto(f"{server.address}{cast.records}suspects/")
            take(page, "admin-suspects")


def of_the_steps() -> None:
    """Let an operation be undone whose server was killed, as the tutorial does, and show its
    steps.
    """
    folder = tempfile.TemporaryDirectory(prefix="idempotency-shop-", ignore_cleanup_errors=True)
    with folder as place, opened(Path(place)) as shop, browsing() as page:
        shop.play(until="kill $(cat server.pid provider.pid)")
        page.goto(
            f"http://localhost:{shop.port}/admin/django_idempotency/idempotencyrecord/?q=asha+gone"
        )
        log_in(page, "asha", "pw")
        page.click("#result_list th a")
        take(page, "admin-steps", of=page.locator(".idempotency-timeline"))


def log_in(page: Page, name: str, password: str) -> None:
    page.fill("#id_username", name)
    page.fill("#id_password", password)
    page.click("[type=submit]")


@contextmanager
def browsing() -> Iterator[Page]:
    """Open a window of the installed Chromium, or of the one that Playwright has downloaded."""
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    with sync_playwright() as playwright:
        sandbox = [] if os.geteuid() else ["--no-sandbox"]  # Chromium has no sandbox as root
        browser = playwright.chromium.launch(executable_path=found, args=sandbox)
        try:
            page = browser.new_page(
                viewport={"width": WIDTH, "height": HEIGHT},
                device_scale_factor=1.5,
                color_scheme="light",
            )
            page.add_init_script("localStorage.setItem('django.admin.navSidebarIsOpen', 'false')")
            yield page
        finally:
            browser.close()


def send_requests(server: Server, cast: Cast) -> None:
    """Leave a record of each kind: completed and replayed, refused, failed, and that of a killed
    worker.
    """
    admin, alice, bob = (
        Client(host=HOST, port=server.port, token=token)
        for token in (cast.admin, cast.alice, cast.bob)
    )
    server.wait_until(lambda: admin.get("/api/effects/"))
    alice.charge(9900, key="order-2041", card="tok_kill_once")
    bob.charge(0, key="order-17")
    bob.charge(500, key="order-18")
    bob.charge(500, key="order-19", card="tok_down")
    for _ in range(2):
        alice.charge(2499, key="order-2042")


def send_twice(server: Server, cast: Cast) -> None:
    """Let a client make a new key for each retry."""
    bob = Client(host=HOST, port=server.port, token=cast.bob)
    for number in (31, 32):
        bob.charge(4900, key=f"order-{number}")
        bob.payout(4900, key=f"payout-{number}")
        time.sleep(1.4)  # for a span that can be read


def take(page: Page, name: str, height: float = HEIGHT, *, of: Locator | None = None) -> None:
    """Write what the window shows, without the empty part at the bottom, in few colours; or only
    some elements of it.
    """
    page.wait_for_load_state("networkidle")
    boxes = [box for each in (of or page.locator("#content")).all() if (box := each.bounding_box())]
    upper = 0 if of is None else min(box["y"] for box in boxes)
    lower = min(height if of is None else HEIGHT, max(box["y"] + box["height"] for box in boxes))
    shot = page.screenshot(
        clip={"x": 0, "y": upper, "width": WIDTH, "height": lower - upper}, full_page=True
    )
    path = DOCS / "pictures" / f"{name}.png"
    Image.open(BytesIO(shot)).convert("RGB").quantize(128).save(path, optimize=True)
    print(f"Taken: docs/pictures/{path.name}, {path.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main(*sys.argv[1:])
