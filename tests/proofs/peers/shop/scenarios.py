"""The requests of the cases: the same to each package."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

from django.db import connection
from django.http import HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from rest_framework.exceptions import ValidationError
from rest_framework.response import Response

from ...environments import ROOT
from .dying import DEAD
from .models import Charge
from .settings import LOCK
from .sites import Shop
from .views import created, stage

#: Seconds: longer than each package's lock, and the most that a request waits for another.
LAPSED, PATIENCE = LOCK + 0.3, 20

FIVE, SIX = '{"amount": 5, "note": ""}', '{"amount": 6, "note": ""}'
REORDERED = '{"note": "",  "amount": 5}'


class Seen(NamedTuple):
    """The statuses of the responses, in the order of the requests; how often the view has run to
    its end; and what else the scenario looks at.
    """

    statuses: tuple[int, ...]
    charges: int
    told: Any = None


Scenario = Callable[[Shop], Seen]


def sent(shop: Shop, *requests: dict[str, Any]) -> Seen:
    """Send these one after the other."""
    responses = [shop.send(**request) for request in requests]
    return Seen(tuple(response.status_code for response in responses), shop.charges())


def retried(shop: Shop) -> Seen:
    return sent(shop, {}, {})


def by_another_user(shop: Shop) -> Seen:
    return sent(shop, {}, {"user": "bob"})


def by_a_stranger(shop: Shop) -> Seen:
    return sent(shop, {}, {"user": ""})


def by_strangers(shop: Shop) -> Seen:
    """Nobody has logged in, and anybody may charge."""
    stage.open = True
    return sent(shop, {"user": ""}, {"user": ""})


def without_permission(shop: Shop) -> Seen:
    """The right to charge is taken away between the two."""
    first = shop.send()
    stage.allowed = False
    return Seen((first.status_code, shop.send().status_code), shop.charges())


def of_another_amount(shop: Shop) -> Seen:
    return sent(shop, {"body": FIVE}, {"body": SIX})


def reordered(shop: Shop) -> Seen:
    """The second has the members of the JSON in another order."""
    return sent(shop, {"body": FIVE}, {"body": REORDERED})


def of_another_query(shop: Shop) -> Seen:
    return sent(shop, {"at": "?currency=eur"}, {"at": "?currency=usd"})


def elsewhere(shop: Shop) -> Seen:
    return sent(shop, {}, {"at": "again/"})


def under(key: str | None, at: str = "") -> Scenario:
    """Return the scenario of one request under a key that is not a UUID, or none."""
    return lambda shop: sent(shop, {"key": key, "at": at})


def by_method(method: str) -> Scenario:
    return lambda shop: sent(shop, {"method": method}, {"method": method})


def overlapping(wait: float, between: Callable[[Shop], object] = bool) -> Scenario:
    """Return the scenario in which the second request comes while the first one is in its view. The
    statuses are the second's and the first's, and it tells the second's `Retry-After`.
    """

    def happen(shop: Shop) -> Seen:
        entered, leave = threading.Event(), threading.Event()
        seen: list[int] = []

        def linger(charge: Charge) -> HttpResponseBase:
            if not entered.is_set():
                entered.set()
                leave.wait(PATIENCE)
            return created(charge)

        def work() -> None:
            seen.append(shop.send().status_code)
            connection.close()

        shop.clients  # noqa: B018 - they are made in this thread
        stage.ends = linger
        first = threading.Thread(target=work)
        first.start()
        assert entered.wait(PATIENCE)
        time.sleep(wait)
        between(shop)
        # Who waits for the first one gets its response then.
        timer = threading.Timer(0.5, leave.set)
        timer.start()
        second = shop.send()
        leave.set()
        first.join()
        timer.cancel()
        return Seen((second.status_code, *seen), shop.charges(), second.get("Retry-After"))

    return happen


at_once = overlapping(0)
past_the_lock = overlapping(LAPSED)


def ending(ends: Callable[[Charge], HttpResponseBase], again: str = FIVE) -> Scenario:
    """Return the scenario in which the first run ends so, and then a request comes that does not."""

    def happen(shop: Shop) -> Seen:
        stage.ends = ends
        first = shop.send()
        stage.ends = created
        return Seen((first.status_code, shop.send(again).status_code), shop.charges())

    return happen


def _raise(error: Exception) -> Callable[[Charge], HttpResponseBase]:
    def ends(charge: Charge) -> HttpResponseBase:
        raise error

    return ends


raising = ending(_raise(RuntimeError("the view fails after its write")))
failing = ending(lambda _: Response({}, status=500))
corrected = ending(lambda _: Response({}, status=400), SIX)
corrected_after_raising = ending(_raise(ValidationError("not this amount")), SIX)
declined = ending(lambda _: Response({}, status=402))
without_content = ending(lambda _: Response(status=204))
streamed = ending(lambda _: StreamingHttpResponse([b"%PDF"], content_type="application/pdf"))
long = ending(lambda _: Response("x" * 1024 * 1024))
plain = ending(lambda _: HttpResponse(b"paid", content_type="text/plain"))


def dying(shop: Shop) -> Seen:
    """The worker dies after its write. Then a retry comes at once, and if it is refused, one when
    the lock has lapsed.
    """
    place = connection.settings_dict["NAME"]
    command = [sys.executable, "-m", "tests.proofs.peers.shop.dying", shop.name, shop.key]
    shop.clients  # noqa: B018 - the worker finds the same user
    died = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PEERS_DATABASE": str(place)}, check=False
    )
    assert died.returncode == DEAD
    statuses = [shop.send().status_code]
    if statuses[0] != 201:
        time.sleep(LAPSED)
        statuses.append(shop.send().status_code)
    return Seen(tuple(statuses), shop.charges())


def dying_long_ago(shop: Shop) -> Seen:
    """After that all records are an hour and a minute older, and another retry comes."""
    seen = dying(shop)
    shop.site.age(timedelta(minutes=61))
    return Seen((*seen.statuses, shop.send().status_code), shop.charges())


def after(**time_: float) -> Scenario:
    """Return the scenario in which the retry comes so late."""

    def happen(shop: Shop) -> Seen:
        first = shop.send()
        shop.site.age(timedelta(**time_))
        return Seen((first.status_code, shop.send().status_code), shop.charges())

    return happen


def _with_headers(charge: Charge) -> HttpResponseBase:
    response = created(charge)
    response["Location"] = f"/charges/{charge.pk}/"
    response["X-Receipt"] = "r-1"
    response.set_cookie("basket", "b-1")
    return response


#: What the view sets, and what a package may say about a replay.
LOOKED_FOR = (
    "Location",
    "X-Receipt",
    "Idempotency-Key",
    "Idempotent-Replayed",
    "Idempotency-Replayed",
    "Cached-From-Idempotency-Key",
    "Idempotency-Status",
)


def headers(shop: Shop) -> Seen:
    """It tells which headers the first response has, and which its replay; cookies are one."""
    stage.ends = _with_headers
    first, second = shop.send(), shop.send()
    told = tuple(
        {name: response[name] for name in LOOKED_FOR if name in response}
        | ({"Set-Cookie": "basket"} if "basket" in response.cookies else {})
        for response in (first, second)
    )
    for each in told:
        for name in each.keys() & {"Location", "Idempotency-Key", "Cached-From-Idempotency-Key"}:
            each[name] = "…"
    return Seen((first.status_code, second.status_code), shop.charges(), told)


def binary(shop: Shop) -> Seen:
    """It tells the bodies of the two responses."""
    stage.ends = lambda _: HttpResponse(b"%PDF\xff", content_type="application/pdf")
    first, second = shop.send(), shop.send()
    assert isinstance(first, HttpResponse)
    assert isinstance(second, HttpResponse)
    return Seen(
        (first.status_code, second.status_code), shop.charges(), (first.content, second.content)
    )
