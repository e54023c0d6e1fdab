"""Open the shop on a database of its own, buy in it, and print the result as JSON.

If the shop misbehaves, the run ends with a sentence that says why, and with status 1.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import django
import httpx
import psycopg

from .customer import PLACE, PLACE_FORM, Customer, Unexpected

AT_ONCE = 20
WORKERS = 4
PASSWORD = "correct horse"


def require(held: bool, sentence: str) -> None:
    if not held:
        raise Unexpected(sentence)


def until(happened: Callable[[], bool], what: str, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not happened():
        require(time.monotonic() < end, f"After {seconds:.0f} s it is still not true that {what}.")
        time.sleep(0.05)


@contextmanager
def database() -> Iterator[None]:
    """Make the shop's database, and drop it afterwards."""
    from django.conf import settings
    from django.db import connections

    place: dict[str, Any] = settings.DATABASES["default"]
    name = psycopg.sql.Identifier(place["NAME"])
    drop = psycopg.sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name)
    with psycopg.connect(
        host=place["HOST"],
        port=place["PORT"],
        user=place["USER"],
        password=place["PASSWORD"],
        dbname="postgres",
        autocommit=True,
    ) as server:
        server.execute(drop)
        server.execute(psycopg.sql.SQL("CREATE DATABASE {}").format(name))
        try:
            yield
        finally:
            connections.close_all()
            server.execute(drop)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Start gunicorn, and return its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"127.0.0.1:{free.getsockname()[1]}"
    options = [
        "--bind",
        url,
        "--workers",
        str(WORKERS),
        "--threads",
        "8",
        "--timeout",
        "120",
        "--no-control-socket",
    ]
    log = folder / "server.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [sys.executable, "-m", "gunicorn", "shop.wsgi", *options],
            env={**os.environ, "DJANGO_SETTINGS_MODULE": "shop.settings"},
            stdout=output,
            stderr=output,
        )
    try:
        until(
            lambda: server.poll() is not None or answers(f"http://{url}/accounts/login/"),
            "the shop answers",
        )
        require(server.poll() is None, f"The shop did not open:\n{log.read_text()[-3000:]}")
        yield f"http://{url}"
    except Exception:
        print(log.read_text(errors="replace")[-6000:], file=sys.stderr)
        raise
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()


def answers(url: str) -> bool:
    with suppress(httpx.TransportError):
        return httpx.get(url, trust_env=False, timeout=30).is_success
    return False


def furnish() -> int:
    """Fill the shop, and return its product."""
    from django.contrib.auth import get_user_model
    from django.core.management import call_command
    from oscar.test import factories

    call_command("migrate", verbosity=0)
    factories.CountryFactory(
        iso_3166_1_a2="GB", printable_name="United Kingdom", is_shipping_country=True
    )
    for name in ("alone", "twenty", "killed"):
        get_user_model().objects.create_user(name, f"{name}@example.com", PASSWORD)
    return int(factories.create_product(price=10, num_in_stock=100).pk)


def orders(name: str) -> int:
    from django.db import connection
    from oscar.apps.order.models import Order

    connection.close()  # to see what others have committed
    return len(Order.objects.filter(user__username=name))


def buy_twenty_times_without_a_key(url: str, product: int) -> dict[str, Any]:
    """Check what the shop does alone: it protects its order number, and its customer sees
    errors.
    """
    customer = Customer(url, "alone@example.com", PASSWORD)
    customer.fill_basket_and_check_out(product)
    found = customer.at_once(AT_ONCE, PLACE, PLACE_FORM, key=None)
    thanked = sum(is_thanked(response) for response in found)
    require(orders("alone") == 1, f"Without a key, {orders('alone')} orders were placed.")
    return {"orders": orders("alone"), "thanked": thanked, "keys": len(customer.keys)}


def buy_twenty_times_at_once(url: str, product: int) -> dict[str, Any]:
    """Press the button twenty times at once, under one key: one order, and nineteen replays of its
    response.
    """
    customer = Customer(url, "twenty@example.com", PASSWORD)
    customer.fill_basket_and_check_out(product)
    found = customer.at_once(AT_ONCE, PLACE, PLACE_FORM, key=str(uuid4()))
    thanked = sum(is_thanked(response) for response in found)
    replays = sum(response.headers.get("Idempotent-Replayed") == "true" for response in found)
    different = {
        (response.status_code, response.headers.get("Location"), response.content)
        for response in found
    }
    require(orders("twenty") == 1, f"{orders('twenty')} orders were placed under one key.")
    require(thanked == AT_ONCE, f"Only {thanked} of {AT_ONCE} were thanked: {different}.")
    require(replays == AT_ONCE - 1, f"{replays} of {AT_ONCE} answers were replays.")
    require(len(different) == 1, f"The answers differ: {different}.")
    require(
        "order" in customer.get("/checkout/thank-you/").text.lower(),
        "There is nothing to say thanks for.",
    )
    return {
        "orders": orders("twenty"),
        "thanked": thanked,
        "replays": replays,
        "keys": len(customer.keys),
    }


def buy_while_a_worker_is_killed(url: str, product: int, stops: Path) -> dict[str, Any]:
    """Kill the worker when the order is made and not committed; the customer sends the form
    again.
    """
    customer = Customer(url, "killed@example.com", PASSWORD)
    customer.fill_basket_and_check_out(product)
    key = str(uuid4())
    stops.touch()
    first = threading.Thread(target=send_and_fail, args=(customer, key))
    first.start()
    until(lambda: bool(stops.read_text(encoding="utf-8")), "a worker is in the middle of an order")
    worker = int(stops.read_text(encoding="utf-8"))
    stops.unlink()
    os.kill(worker, signal.SIGKILL)
    first.join()
    require(orders("killed") == 0, "A killed worker left an order.")
    (retried,) = customer.at_once(1, PLACE, PLACE_FORM, key=key)
    require(
        is_thanked(retried), f"The retry was answered {retried.status_code}: {retried.text[:500]}"
    )
    (again,) = customer.at_once(1, PLACE, PLACE_FORM, key=key)
    require(again.headers.get("Idempotent-Replayed") == "true", "The second retry was no replay.")
    require(orders("killed") == 1, f"{orders('killed')} orders were placed.")
    return {"orders": orders("killed"), "keys": len(customer.keys)}


def send_and_fail(customer: Customer, key: str) -> None:
    with suppress(httpx.TransportError):
        customer.post(PLACE, PLACE_FORM, key=key)


def is_thanked(response: httpx.Response) -> bool:
    return response.status_code == 302 and response.headers["Location"].startswith(
        "/checkout/thank-you/"
    )


def records() -> int:
    from django_idempotency.models import IdempotencyRecord

    return IdempotencyRecord.objects.count()


def main() -> int:
    os.environ["DJANGO_SETTINGS_MODULE"] = "shop.settings"
    django.setup()
    with tempfile.TemporaryDirectory() as folder:
        stops = Path(folder, "stops")
        os.environ["SHOP_STOPS"] = str(stops)
        try:
            with database():
                product = furnish()
                with served(Path(folder)) as url:
                    found = {
                        "without a key": buy_twenty_times_without_a_key(url, product),
                        "at once": buy_twenty_times_at_once(url, product),
                        "killed": buy_while_a_worker_is_killed(url, product, stops),
                    }
                    sent = sum(each["keys"] for each in found.values())
                    require(
                        records() == sent,
                        f"{sent} keys were sent, and {records()} records are stored.",
                    )
        except (Unexpected, psycopg.OperationalError, httpx.HTTPError) as error:
            print(f"The shop: {error}")
            return 1
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
