"""Where form.js sends the CSRF token, and for which forms it asks for a key. Runs in Node.js."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import django_idempotency

NODE = shutil.which("node")
SCRIPT = (
    Path(django_idempotency.__file__).with_name("contrib")
    / "forms"
    / "static"
    / "django_idempotency"
    / "form.js"
)
HARNESS = Path(__file__).with_name("origins.js")
KEYS = "/idempotency-tokens"

pytestmark = [
    pytest.mark.skipif(NODE is None, reason="runs the script in Node.js"),
    pytest.mark.slow,  # each starts it
]


@pytest.mark.parametrize(
    ("keys", "action", "asked"),
    [
        (KEYS, "/order/", [[KEYS, "/order/"]]),
        (
            f"https://shop.example{KEYS}",
            "https://shop.example/order/",
            [[f"https://shop.example{KEYS}", "/order/"]],
        ),
        (f"https://elsewhere.example{KEYS}", "/order/", []),
        (f"//elsewhere.example{KEYS}", "/order/", []),
        (KEYS, "https://elsewhere.example/order/", []),
        (KEYS, "http://shop.example/order/", []),
    ],
)
def test_an_edited_form(keys: str, action: str, asked: list[list[str]]) -> None:
    """The token goes to the page's own origin alone, which is asked for keys of its own paths
    alone.
    """
    assert NODE is not None
    command = [NODE, str(HARNESS), str(SCRIPT), keys, action]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout) == asked
