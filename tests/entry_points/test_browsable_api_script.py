"""The script of the browsable API: which key it sends with a form, and when it makes a new one.

Runs in Node.js.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

import django_idempotency
from django_idempotency.core.key_formats import spelled

NODE = shutil.which("node")
SCRIPT = (
    Path(django_idempotency.__file__).with_name("static")
    / "django_idempotency"
    / "browsable-api.js"
)
HARNESS = Path(__file__).with_name("browsable_api.js")

pytestmark = [
    pytest.mark.skipif(NODE is None, reason="runs the script in Node.js"),
    pytest.mark.slow,  # each starts it
]

CREATED = {"status": 201, "type": "text/html; charset=utf-8", "body": "<p>created</p>"}
POST = {"attributes": {"method": "post"}, "fields": {"label": "a"}}


def run(*steps: dict[str, Any], version: int = 4) -> list[dict[str, Any]]:
    """Send forms from one window, one after another.

    Return what each has done: see browsable_api.js.
    """
    assert NODE is not None
    command = [NODE, str(HARNESS), str(SCRIPT), str(version)]
    done = subprocess.run(
        command, input=json.dumps(steps), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def keys(*steps: dict[str, Any]) -> list[str]:
    return [done["sent"]["headers"]["X-Order-Key"] for done in run(*steps)]


def test_a_form_is_sent_with_a_key() -> None:
    """A plain POST goes through the script, with the project's header, the CSRF token, and the
    fields of the form.
    """
    (done,) = run({"form": POST, "response": CREATED})
    sent = done["sent"]
    assert done["prevented"]
    assert (sent["method"], sent["url"], sent["body"]) == (
        "POST",
        "https://shop.example/api/charges/",
        "label=a",
    )
    assert sent["headers"]["X-CSRFToken"].startswith("token-")
    assert "Content-Type" not in sent["headers"]  # the browser's own
    assert (done["page"], done["address"]) == (CREATED["body"], sent["url"])


@pytest.mark.parametrize("version", [4, 7])
def test_a_key_has_the_format_that_the_view_asks_for(version: int) -> None:
    """A UUID of that version passes; one with a date is of now."""
    (done,) = run({"form": POST, "response": CREATED}, version=version)
    key, now = done["sent"]["headers"]["X-Order-Key"], datetime.now(timezone.utc)
    assert spelled(key, f"uuid{version}", now=now, ttl=60) == key


@pytest.mark.parametrize(
    "response", [None, *({"status": status} for status in (408, 409, 425, 429, 500, 503))]
)
def test_a_retry_has_the_same_key(response: dict[str, Any] | None) -> None:
    """An unchanged form keeps its key until the response is final, and the page says so."""
    first, again = run({"form": POST, "response": response}, {"form": POST, "response": CREATED})
    assert first["page"] is None
    assert "send the unchanged form again" in first["said"]
    assert first["sent"]["headers"]["X-Order-Key"] == again["sent"]["headers"]["X-Order-Key"]


@pytest.mark.parametrize("status", [200, 201, 204, 302, 400, 403, 404, 422])
def test_a_final_response_ends_the_key(status: int) -> None:
    """The same form, sent once more, is a new operation."""
    first, second = keys(*[{"form": POST, "response": {"status": status}}] * 2)
    assert first != second


def test_an_edited_form_has_another_key() -> None:
    """An edit is another request; the first content, sent again, is still the same operation."""
    edited = {**POST, "fields": {"label": "b"}}
    first, second, third = keys({"form": POST}, {"form": edited}, {"form": POST})
    assert first != second
    assert first == third


@pytest.mark.parametrize(
    "other",
    [
        {"form": POST, "button": {"method": "PUT"}},
        {"form": {**POST, "attributes": {"method": "post", "action": "/api/refunds/"}}},
    ],
)
def test_another_method_or_address_has_another_key(other: dict[str, Any]) -> None:
    """The buttons of a form have methods of their own."""
    first, second = keys({"form": POST}, other)
    assert first != second


def test_the_key_outlives_the_page() -> None:
    """A new page in the same window has another CSRF token, and still the key of a form without a
    final response.
    """
    token = {**POST, "fields": {"label": "a", "csrfmiddlewaretoken": "masked-1"}}
    masked_anew = {**POST, "fields": {"label": "a", "csrfmiddlewaretoken": "masked-2"}}
    other = {**POST, "fields": {"label": "b"}}
    first, page, again = run(
        {"form": token}, {"form": other, "response": CREATED}, {"form": masked_anew}
    )
    assert page["page"] == CREATED["body"]
    assert first["sent"]["headers"]["X-CSRFToken"] != again["sent"]["headers"]["X-CSRFToken"]
    assert first["sent"]["headers"]["X-Order-Key"] == again["sent"]["headers"]["X-Order-Key"]


def test_a_response_that_was_not_stored() -> None:
    """The work is done and its response is lost, so the page does not suggest another try."""
    body = json.dumps({"code": "response-not-stored"})
    (done,) = run({"form": POST, "response": {"status": 409, "body": body}})
    assert done["said"] == f"HTTP 409 {body}"


def test_a_response_without_a_page_is_shown_as_text() -> None:
    """JSON and plain text are shown in the form, never written as markup."""
    (done,) = run({"form": POST, "response": {"status": 422, "body": "<b>no</b>"}})
    assert (done["page"], done["said"]) == (None, "HTTP 422 <b>no</b>")


def test_raw_content() -> None:
    """The raw form is sent with its own type; a multipart body has its boundary and its line
    ends.
    """
    plain = {**POST, "raw": ["application/json", '{"label": "a"}']}
    multipart = {**POST, "raw": ["multipart/form-data", "--here\nx\n--here--"]}
    first, second = (done["sent"] for done in run({"form": plain}, {"form": multipart}))
    assert (first["headers"]["Content-Type"], first["body"]) == (
        "application/json",
        '{"label": "a"}',
    )
    assert second["headers"]["Content-Type"] == 'multipart/form-data; boundary="here"'
    assert second["body"] == "--here\r\nx\r\n--here--"


@pytest.mark.parametrize(
    "step",
    [
        {"form": {"attributes": {"method": "get"}}},
        {"form": {**POST, "outside": True}},  # to log out, say
        {
            "form": {
                **POST,
                "attributes": {"method": "post", "action": "https://elsewhere.example/"},
            }
        },
        {"form": POST, "prevented": True},
    ],
)
def test_other_forms_are_left_alone(step: dict[str, Any]) -> None:
    """Safe methods, forms outside the content, and other sites are the browser's: no key and no
    token leaves.
    """
    (done,) = run(step)
    assert (done["sent"], done["prevented"]) == (None, False)
