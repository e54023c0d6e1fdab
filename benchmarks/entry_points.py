"""HTTP requests in process: from the handler's `get_response()` to the rendered response."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial

from django.contrib.auth.models import User
from django.core.handlers.base import BaseHandler
from django.db import connection
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.test import RequestFactory, override_settings
from django.utils import timezone
from rest_framework.authtoken.models import Token

from django_idempotency.contrib.at_rest.sealed import Keyring, SealedStore
from django_idempotency.core.records import Status
from django_idempotency.instrumentation.meters import meters
from django_idempotency.models import IdempotencyRecord
from django_idempotency.runtime.registry import stores
from django_idempotency.stores.base import BaseStore
from django_idempotency.stores.orm import ORMStore
from testproject.payments.models import Charge

from . import counting, views
from .measuring import Act, Case, Effort, Timings, interleaved
from .table import Row, Section

MIDDLEWARE = "django_idempotency.middleware.IdempotencyMiddleware"
BODY = {"amount": 2499, "currency": "inr"}
LABELLED = {"label": "work"}
#: An encryption key.
KEY = "x" * 43 + "="

Answer = Callable[[HttpRequest], HttpResponseBase]


class Wrong(Exception):
    """The response to a request was not that of its case, so its time would measure something
    else.
    """


class EntryPoints:
    """Makes requests, and the cases that send them."""

    def __init__(self, name: str = "bench") -> None:
        self._factory = RequestFactory()
        self._user = User.objects.create_user(name)
        self._token = Token.objects.create(user=self._user).key
        self._bare = handler()
        self._guarded = handler(MIDDLEWARE)
        self._numbers = itertools.count()
        self._latest = ""
        views.STOCK = Charge.objects.create(user=self._user, amount=2499, currency="inr").pk

    def fresh(self) -> str:
        """Return a key that is not in use."""
        self._latest = f"{self._user.get_username()}-{next(self._numbers):012}"
        return self._latest

    def latest(self) -> str:
        """Return the key that `fresh()` has returned last."""
        return self._latest

    def used(self, path: str) -> str:
        """Return a key whose response is remembered."""
        key = self.fresh()
        self._answered(
            self._bare, self._request(path, key, LABELLED if "rest" in path else BODY), 201
        )
        return key

    def running(self, path: str) -> str:
        """Return a key whose owner is still working."""
        key = self.used(path)
        later = timezone.now() + timedelta(hours=1)
        IdempotencyRecord.objects.filter(key=key).update(
            status=Status.RUNNING.value, lease_until=later
        )
        return key

    def case(
        self,
        name: str,
        path: str,
        key: Callable[[], str] | None = None,
        *,
        status: int = 201,
        body: Mapping[str, object] | None = None,
        middleware: bool = False,
    ) -> Case:
        answer = self._guarded if middleware else self._bare
        given = body or (LABELLED if "rest" in path else BODY)

        def prepare() -> Act:
            request = self._request(path, key() if key else None, given)
            return partial(self._answered, answer, request, status)

        return Case(name, prepare)

    def _request(self, path: str, key: str | None, body: object) -> HttpRequest:
        headers = {"Authorization": f"Token {self._token}"} if "rest" in path else {}
        if key is not None:
            headers["Idempotency-Key"] = key
        request = self._factory.post(path, body, content_type="application/json", headers=headers)
        request.user = self._user
        return request

    @staticmethod
    def _answered(answer: Answer, request: HttpRequest, status: int) -> None:
        response = answer(request)
        if response.status_code != status:
            raise Wrong(
                f"{request.path} answered {response.status_code}, not {status}: {response!r}"
            )


def handler(*middleware: str) -> Answer:
    with override_settings(MIDDLEWARE=middleware):
        made = BaseHandler()
        made.load_middleware()
    return made.get_response


def sections(effort: Effort) -> list[Section]:
    entry_points = EntryPoints()
    return [plain(entry_points, effort), rest(entry_points, effort)]


def plain(entry_points: EntryPoints, effort: Effort) -> Section:
    replayed, running = entry_points.used("/atomic/"), entry_points.running("/lease/")
    base = entry_points.case("bare view", "/bare/")
    cases = {
        "first, atomic": entry_points.case("first request, atomic", "/atomic/", entry_points.fresh),
        "first, middleware": entry_points.case(
            "first request, atomic, by the middleware",
            "/plain/",
            entry_points.fresh,
            middleware=True,
        ),
        "first, lease": entry_points.case("first request, lease", "/lease/", entry_points.fresh),
        "three steps": entry_points.case(
            "first request, lease, in three steps", "/steps/", entry_points.fresh
        ),
        "replay": entry_points.case("replay", "/atomic/", lambda: replayed),
        "busy": entry_points.case("busy (409)", "/lease/", lambda: running, status=409),
        "mismatch": entry_points.case(
            "mismatch (422)", "/atomic/", lambda: replayed, status=422, body={"amount": 1}
        ),
        "no key, middleware": entry_points.case(
            "no key, under the middleware", "/bare/", middleware=True
        ),
        "no key, decorator": entry_points.case("no key, under the decorator", "/lease/"),
    }
    first = {"postgresql": 2.6, "mysql": 2.3, "sqlite": 2.7}[connection.vendor]
    bars = {
        "first, atomic": first,
        "first, middleware": first,
        "no key, middleware": 1.02,
        "no key, decorator": 1.02,
    }
    bare = counting.statements(base)
    known = 2
    most = {
        "replay": known,
        "busy": known,
        "mismatch": known,
        "no key, middleware": bare,
        "no key, decorator": bare,
    }
    # Claim, lock, settle. SQLite reads first. If a transaction has no id that the settle can
    # compare, a savepoint and its release identify it.
    guarded = bare + {"postgresql": 3, "mysql": 5, "sqlite": 6}[connection.vendor]
    leased = bare + (3 if connection.vendor == "sqlite" else 2)
    most |= {"first, atomic": guarded, "first, middleware": guarded, "first, lease": leased}
    # The row of each, and BEGIN and COMMIT of the second that writes here.
    most["three steps"] = leased + 3 + 2
    timings = interleaved([base, *cases.values()], effort)
    return Section(
        title="Through HTTP; bare two-statement view in its own transaction = 1 "
        f"({shown(timings, base)}, {bare} statements)",
        rows=[
            row(timings, case, base, bars.get(short), most.get(short))
            for short, case in cases.items()
        ],
    )


def rest(entry_points: EntryPoints, effort: Effort) -> Section:
    replayed = entry_points.used("/rest/guarded/")
    with stores.replaced("default", sealing()):
        kept = entry_points.used("/rest/guarded/")
    base = entry_points.case("bare DRF view", "/rest/bare/")
    first, replay = (1.6, 0.6) if connection.vendor == "postgresql" else (None, None)
    cases = [
        (
            entry_points.case(
                "first request, atomic, by the mixin", "/rest/guarded/", entry_points.fresh
            ),
            first,
        ),
        (
            kept_in(
                ORMStore(durable_claims=False),
                entry_points.case(
                    "the same, durable_claims off", "/rest/guarded/", entry_points.fresh
                ),
            ),
            None,
        ),
        (entry_points.case("replay, by the mixin", "/rest/guarded/", lambda: replayed), replay),
        (entry_points.case("no key, under the mixin", "/rest/guarded/"), 1.02),
        (
            counted(
                entry_points.case(
                    "first request, counted for Prometheus", "/rest/guarded/", entry_points.fresh
                )
            ),
            None,
        ),
        (counted(entry_points.case("no key, counted for Prometheus", "/rest/guarded/")), None),
        (
            sealed(
                entry_points.case("first request, sealed", "/rest/guarded/", entry_points.fresh)
            ),
            None,
        ),
        (sealed(entry_points.case("replay, sealed", "/rest/guarded/", lambda: kept)), None),
        (
            entry_points.case("no key, under the middleware (DRF)", "/rest/bare/", middleware=True),
            1.02,
        ),
    ]
    timings = interleaved([base, *(case for case, _ in cases)], effort)
    return Section(
        title="Through DRF with token auth; bare view that inserts one row = 1 "
        f"({shown(timings, base)}, "
        f"{counting.statements(base)} statements)",
        rows=[row(timings, case, base, bar) for case, bar in cases],
    )


def counted(case: Case) -> Case:
    """Return a case with METRICS of Prometheus."""
    from django_idempotency.contrib.metrics.prometheus import PrometheusMeter

    meter = PrometheusMeter()

    def prepare() -> Act:
        act = case.prepare()

        def measured() -> None:
            meters.active = (meter,)
            try:
                act()
            finally:
                meters.active = ()

        return measured

    return Case(case.name, prepare)


def sealing() -> BaseStore:
    """Return the store as with ENCRYPTION_KEYS."""
    return SealedStore(stores["default"], Keyring([KEY]))


def sealed(case: Case) -> Case:
    """Return a case with ENCRYPTION_KEYS."""
    return kept_in(sealing(), case)


def kept_in(store: BaseStore, case: Case) -> Case:
    """Return a case whose records are kept in a store."""

    def prepare() -> Act:
        act = case.prepare()

        def measured() -> None:
            with stores.replaced("default", store):
                act()

        return measured

    return Case(case.name, prepare)


def row(
    timings: Timings, case: Case, base: Case, bar: float | None, most: int | None = None
) -> Row:
    return Row(
        name=case.name,
        values=timings.ratios(case.name, base.name),
        bar=bar,
        statements=counting.statements(case),
        most_statements=most,
        flushes=counting.flushes(case),
    )


def shown(timings: Timings, base: Case) -> str:
    return f"{min(timings[base.name]) * 1000:.2f} ms"
