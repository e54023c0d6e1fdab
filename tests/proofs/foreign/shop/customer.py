"""A customer with a browser: cookies, CSRF tokens, and a fresh key for each form."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import httpx

ADDRESS = {
    "first_name": "Ada",
    "last_name": "Lovelace",
    "line1": "12 St James's Square",
    "line4": "London",
    "postcode": "SW1Y 4JH",
}
PLACE = "/checkout/preview/"
PLACE_FORM = {"action": "place_order"}
#: Seconds for which a duplicate is repeated.
PATIENCE = 30


class Unexpected(Exception):
    """The shop's response is not what a customer may expect."""


class Customer:
    def __init__(self, url: str, email: str, password: str) -> None:
        self._url = url
        self._client = httpx.Client(base_url=url, trust_env=False, timeout=60)
        #: The keys of requests after the login: a request before it has no owner, and is not
        #: guarded.
        self.keys: set[str] = set()
        self.get("/accounts/login/")
        form = {"login-username": email, "login-password": password, "login_submit": "1"}
        self.expect(self.post("/accounts/login/", form), 302)
        self.keys.clear()

    def get(self, path: str) -> httpx.Response:
        return self.expect(self._client.get(path, follow_redirects=True), 200)

    def post(self, path: str, form: dict[str, str], *, key: str | None = None) -> httpx.Response:
        """Send a form under a key, a fresh one unless it is given."""
        return self._client.post(path, data=form, headers=self._headers(key or str(uuid4())))

    def _headers(self, key: str | None) -> dict[str, str]:
        headers = {"X-CSRFToken": self._client.cookies["csrftoken"], "Referer": self._url}
        if key is None:
            return headers
        self.keys.add(key)
        return {**headers, "Idempotency-Key": key}

    def at_once(
        self, count: int, path: str, form: dict[str, str], *, key: str | None
    ) -> list[httpx.Response]:
        """Send a form this many times at once, and each again while it is busy; without a key each
        once.
        """
        headers, cookies = self._headers(key), dict(self._client.cookies)

        def send(_: int) -> httpx.Response:
            until = time.monotonic() + PATIENCE
            with httpx.Client(
                base_url=self._url, trust_env=False, timeout=60, cookies=cookies
            ) as client:
                while True:
                    response = client.post(path, data=form, headers=headers)
                    if response.status_code != 409 or time.monotonic() > until:
                        return response
                    time.sleep(0.1)

        with ThreadPoolExecutor(count) as pool:
            return list(pool.map(send, range(count)))

    def fill_basket_and_check_out(self, product: int) -> None:
        """Go to the page with the button "Place order"."""
        self.get("/catalogue/")
        self.expect(self.post(f"/basket/add/{product}/", {"quantity": "1"}), 302)
        self.get("/checkout/")
        self.expect(
            self.post("/checkout/shipping-address/", ADDRESS), 302, "/checkout/shipping-method/"
        )
        self.expect(self.post("/checkout/shipping-method/", {"method_code": "free-shipping"}), 302)
        self.get("/checkout/payment-method/")
        self.expect(self.post(PLACE, {}), 200)  # the payment details: Oscar's own have no fields

    def expect(self, response: httpx.Response, status: int, location: str = "") -> httpx.Response:
        if response.status_code != status or not response.headers.get("Location", "").startswith(
            location
        ):
            found = (
                f"{response.status_code} {response.headers.get('Location', '')} "
                f"{response.text[:500]}"
            )
            raise Unexpected(f"{response.request.method} {response.request.url} answered {found}")
        return response
