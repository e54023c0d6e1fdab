"""Run the journeys on a real server, show their results, and keep serving.

    python -m testproject.demo

Exits with 1 if any result differs from its promise. With DEMO_EXIT=1 it always exits after the
table.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from functools import partial
from http.client import HTTPException
from pathlib import Path

from rich.console import Console

from . import table
from .client import Client
from .journeys import PRICE, Players, journeys
from .rows import exit_code
from .server import HOST, THREADS, WORKERS, Server, ServerDied, serving
from .stage import Cast, prepare


def main() -> int:
    """Return the exit code of the process."""
    # Treated like Ctrl-C: the server must not outlive this process.
    for ending in (
        signal.SIGTERM,
        signal.SIGHUP,
    ):
        signal.signal(ending, signal.default_int_handler)
    os.environ.setdefault("AUDIT", "1")  # for a timeline on the page of each record
    console = table.console()
    with tempfile.TemporaryDirectory(
        prefix="idempotency-demo-", ignore_cleanup_errors=True
    ) as folder:
        cast = prepare(Path(folder) / "demo.sqlite3")
        with serving(Path(folder) / "gunicorn.log") as server:
            try:
                code = play(console, server, cast)
                if code == 0 and os.environ.get("DEMO_EXIT") != "1":
                    serve(console, server, cast)
            except (ServerDied, HTTPException, OSError) as error:
                console.print(
                    f"The server did not answer: {error!r}", style="bold red", markup=False
                )
                code = 1
            if code:
                console.print("\nThe end of the server's log:")
                console.print(server.last_words(), markup=False, soft_wrap=True)
    return code


def play(console: Console, server: Server, cast: Cast) -> int:
    """Run every journey, print the table, and return the exit code."""
    console.print(
        f"A payments API on SQLite, behind gunicorn, {WORKERS} processes of {THREADS} "
        f"threads, {server.address}",
        soft_wrap=True,
    )
    client = partial(Client, host=HOST, port=server.port)
    alice, bob, admin = (client(token=token) for token in (cast.alice, cast.bob, cast.admin))
    rows = []
    with console.status("Starting the server"):
        server.wait_until(lambda: admin.get("/api/effects/"))
    with console.status("Sending requests") as status:
        for row in journeys(
            Players(alice=alice, bob=bob, admin=admin, claim_lease=cast.claim_lease)
        ):
            rows.append(row)
            status.update(f"Sending requests: {row.journey} is done")
    console.print()
    console.print(table.table(rows, ascii_only=not console.encoding.startswith("utf")))
    console.print()
    console.print("Effects: rows that the step's work left in the database / as promised.")
    broken = sum(not row.kept for row in rows)
    if broken:
        console.print(f"{broken} of {len(rows)} steps are not as promised.", style="bold red")
    else:
        console.print(f"All {len(rows)} steps are as promised.", style="bold green")
    return exit_code(rows)


def serve(console: Console, server: Server, cast: Cast) -> None:
    """Explain how to continue, in the admin and with requests of your own, and serve until
    Ctrl-C.
    """
    # What is left to look at: each status of the list.
    bob = Client(host=HOST, port=server.port, token=cast.bob)
    bob.charge(PRICE, key="order-6", card="tok_declined")
    bob.charge(PRICE, key="order-7", card="tok_down")
    bob.charge(0, key="order-8")
    bob.charge(PRICE, key="order-9", card="tok_kill_once")
    invitation = f"""
Begin at      {server.address}/
the records   {server.address}{cast.records}
the metrics   {server.address}/metrics/
log in as     admin
password      {cast.password}

Try it yourself, twice, and then with another amount:

curl -i {server.address}/api/charges/ \\
  -H 'Authorization: Token {cast.alice}' \\
  -H 'Idempotency-Key: my-order' \\
  -H 'Content-Type: application/json' \\
  -d '{{"amount": 2499, "currency": "inr"}}'

Ctrl-C ends the server."""
    console.print(invitation, markup=False, soft_wrap=True)
    try:
        server.wait()
    except KeyboardInterrupt:
        console.print("\nGoodbye.")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
