"""The page on keys names the clients that the profiles are tested with, in the versions that are
pinned.
"""

from __future__ import annotations

import json

from ..proofs.clients.clients import CLIENTS, Client
from ..proofs.clients.environment import PACKAGE, REQUIREMENTS
from .pages import checked


def version_of(client: Client) -> str:
    if client.index == "npm":
        return str(json.loads(PACKAGE.read_text(encoding="utf-8"))["dependencies"][client.package])
    pins = dict(
        line.split("==")
        for line in REQUIREMENTS.read_text(encoding="utf-8").splitlines()
        if "==" in line
    )
    return {name.lower(): version for name, version in pins.items()}[client.package]


def refusal(error: tuple[str, int, str | None]) -> str:
    name, status, code = error
    return f"{status}{'' if code is None else f' `{code}`'}: `{name}`"


def test_the_clients() -> None:
    """Each with its errors, and with what it does by itself."""
    answer = {True: "yes", False: "no"}
    rows = [
        [
            f"`{client.package}` {version_of(client)}, {client.index}",
            f"`{client.profile}`",
            refusal(client.mismatch),
            refusal(client.running),
            answer[client.after_loss],
            answer[client.while_running],
        ]
        for client in CLIENTS
    ]
    assert checked("how-to/keys.md", "clients") == rows
