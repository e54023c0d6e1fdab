"""A time limit may raise at any line: it leaves nothing behind, the next call works, and a retry
ends right.

Each test raises at every line of the package that runs between the claim and the end of the settle,
one line in each call, once as an `Exception` and once as a `BaseException`. Lines that only compute
are left out: what they raise is what the line raises that calls them.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from contextvars import copy_context
from datetime import datetime, timezone
from functools import partial
from itertools import count
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import Error, connection, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import Client, override_settings
from django.urls import path
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import IsAuthenticated
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import Policy, idempotent, idempotent_function
from django_idempotency.core.records import Status
from django_idempotency.engine.deferring import deferring
from django_idempotency.engine.heartbeat import heartbeat
from django_idempotency.engine.notifying import notifier
from django_idempotency.engine.waiting import wait_slots
from django_idempotency.errors import InProgress
from django_idempotency.functions import current_operation
from django_idempotency.models import IdempotencyRecord
from django_idempotency.rest_framework import IdempotentViewMixin
from testproject.payments.models import Effect
from tests.stores.helpers import committed
from tests.support.interrupts import HardLimit, Interrupt, Line, TimeLimit

pytestmark = [committed, pytest.mark.slow, pytest.mark.either_server]

MODULE = "tests.entry_points.test_interrupts"
USER = User(pk=1, username="ada")
LONG_AGO = datetime(2020, 1, 1, tzinfo=timezone.utc)
#: The keys of these tests.
NUMBERS = count(1)
#: The views and requests of one call.
SEEN: list[Any] = []
#: The keys whose work fails, and how.
FAILING: dict[str, type[BaseException]] = {}


class SignedIn:
    """A middleware whose requests have a user, without a query."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        request.user = USER
        return self.get_response(request)


class FromMiddleware(BaseAuthentication):
    def authenticate(self, request: Any) -> tuple[Any, None]:
        return request._request.user, None


class WorkFailed(Exception):
    """The work's own failure."""


class Refused(Exception):
    """A response that is not a success."""


def work(key: str, attempt: int) -> int:
    """Leave one effect. It has the same key as its record, or that of its function."""
    made = Effect.objects.create(label="work", idempotency_key=key, attempt=attempt)
    if (error := FAILING.pop(key, None)) is not None:
        raise error
    return int(made.pk)


def charge(request: HttpRequest) -> HttpResponse:
    SEEN.append(request)
    handle: Any = request.idempotency  # type: ignore[attr-defined]
    return JsonResponse({"id": work(handle.key, handle.attempt)}, status=201)


def plain(request: HttpRequest) -> HttpResponse:
    """As charge(), without a decorator's marks."""
    return charge(request)


class Charge(IdempotentViewMixin, APIView):
    authentication_classes = (FromMiddleware,)
    permission_classes = (IsAuthenticated,)

    def post(self, request: Any) -> Response:
        SEEN.extend([self, request._request])
        handle = request.idempotency
        return Response({"id": work(handle.key, handle.attempt)}, status=201)


class Surrounded(Charge):
    """A project opens a transaction of its own around the dispatch."""

    @transaction.atomic
    def dispatch(self, *args: Any, **kwargs: Any) -> Any:
        return super().dispatch(*args, **kwargs)


urlpatterns = [
    path("decorator/atomic", idempotent()(plain)),
    path("decorator/lease", idempotent(guarantee="lease")(plain)),
    path("middleware/atomic", plain),
    path("middleware/lease", plain),
    path("drf/atomic", Charge.as_view()),
    path("drf/lease", Charge.as_view(idempotency=Policy(guarantee="lease"))),
    path("surrounded/atomic", Surrounded.as_view()),
]


def _function(key: str) -> int:
    handle = current_operation()
    assert handle is not None
    return work(key, handle.attempt)


FUNCTIONS = {
    guarantee: idempotent_function(
        key="key", key_prefix=f"interrupts-{guarantee}", guarantee=guarantee
    )(_function)
    for guarantee in ("atomic", "lease")
}


def nested(guarantee: str, key: str) -> int:
    """Call the function inside a transaction of its caller."""
    with transaction.atomic():
        return FUNCTIONS[guarantee](key)


def sent(url: str, key: str) -> int:
    """Send a request, and return the id in its response."""
    headers = {"Idempotency-Key": key}
    response = Client().post(url, b"{}", content_type="application/json", headers=headers)
    if response.status_code == 409:
        raise InProgress
    if response.status_code != 201:
        raise Refused(response.status_code, response.content)
    return int(response.json()["id"])


def entry(name: str, guarantee: str) -> Callable[[str], int]:
    """Return the call of an entry point under a key. It returns the id of its effect."""
    if name == "function":
        return FUNCTIONS[guarantee]
    return partial(nested, guarantee) if name == "nested" else partial(sent, f"/{name}/{guarantee}")


# ------------------------------------------------------------------------------ what is left behind


def left_behind() -> list[str]:
    """Return what a call has left behind."""
    return [*current(), *on_the_connection(), *in_the_process(), *on_what_was_seen()]


def current() -> Iterator[str]:
    for variable, value in copy_context().items():
        if variable.name.startswith("django_idempotency"):
            alive = (
                [one for one in value if not one.ended] if isinstance(value, frozenset) else value
            )
            if alive:
                yield f"{variable.name} is set"


def on_the_connection() -> Iterator[str]:
    for name in (
        "in_atomic_block",
        "atomic_blocks",
        "savepoint_ids",
        "run_on_commit",
    ):
        if getattr(connection, name):
            yield f"connection.{name}"
    if connection.execute_wrappers:
        yield "a wrapper of statements"
    for name in {"close_if_unusable_or_obsolete", "set_rollback"} & vars(connection).keys():
        yield f"our {name}() of the connection"
    driver: Any = connection.connection
    if driver is None:
        return
    if connection.closed_in_transaction:  # without a driver's connection the next one resets it
        yield "connection.closed_in_transaction"
    if not connection.autocommit:
        yield "autocommit is off"
    if connection.vendor == "sqlite" and (driver.in_transaction or patience() != 20_000):
        yield f"SQLite's transaction ({driver.in_transaction}) or patience ({patience()})"
    if connection.vendor == "postgresql" and driver.info.transaction_status != 0:
        yield f"PostgreSQL's transaction: {driver.info.transaction_status!r}"


def patience() -> int:
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout")
        return int(cursor.fetchone()[0])


def in_the_process() -> Iterator[str]:
    if heartbeat._watched:
        yield "the heartbeat renews a lease"
    for one in (heartbeat, deferring, notifier):
        if f"owner={threading.get_ident()} " in repr(one._lock):
            yield f"the lock of {one.name}"
    if wait_slots.count:
        yield "the slots of those that wait"


def on_what_was_seen() -> Iterator[str]:
    for one in SEEN:
        if isinstance(one, APIView):
            own = {"post", "finalize_response", "handle_exception"} & vars(one).keys()
            if own:
                yield f"the view's {own}"
        elif (
            one.idempotency._exchange.call is not None
            or one.idempotency._exchange.entry is not None
        ):
            yield "the call of a request"


def cleared() -> None:
    """Begin anew after a case that has left something behind."""
    connection.in_atomic_block = False
    connection.closed_in_transaction = False
    connection.execute_wrappers = []
    connection.atomic_blocks.clear()
    connection.savepoint_ids.clear()
    vars(connection).pop("close_if_unusable_or_obsolete", None)
    vars(connection).pop("set_rollback", None)
    with suppress(Error):
        connection.close()
    heartbeat._watched.clear()
    wait_slots.reset_after_fork()
    for one in (heartbeat, deferring, notifier):
        with suppress(RuntimeError):
            one._lock.release()


# ----------------------------------------------------------------------------------------- one case


def records(key: str) -> Any:
    spoken = [key, *[function.idempotency.key_for(key) for function in FUNCTIONS.values()]]
    return IdempotencyRecord.objects.filter(key__in=spoken)


def attempts(key: str) -> list[int]:
    """Return the attempts that have left an effect."""
    return sorted(Effect.objects.filter(idempotency_key=key).values_list("attempt", flat=True))


def is_remembered(key: str) -> bool:
    return bool(records(key).filter(status=Status.COMPLETED).exists())


def first(_call: Callable[[str], int], key: str) -> str:
    return key


def failing(_call: Callable[[str], int], key: str) -> str:
    """Let the work fail once."""
    FAILING[key] = WorkFailed
    return key


def abandoned(call: Callable[[str], int], key: str) -> str:
    """Leave a record whose owner is dead, and whose lease is over."""
    FAILING[key] = HardLimit
    with suppress(HardLimit):
        call(key)
    Effect.objects.filter(idempotency_key=key).delete()
    records(key).update(lease_until=LONG_AGO)
    return key


def wrong(
    call: Callable[[str], int], key: str, at: Line, error: type[BaseException], guarantee: str
) -> list[str]:
    """Interrupt a call, and return what is wrong afterwards."""
    interrupt, found = Interrupt(at, error), list[str]()
    SEEN.clear()
    heard = False
    try:
        interrupt(partial(call, key))
    except (error, WorkFailed):
        heard = True
    except BaseException as other:  # noqa: BLE001 - it is reported
        heard = True
        found.append(f"raised {other!r}")
    FAILING.clear()
    if interrupt.raised is None:
        return []
    if not heard:
        found.append("nobody heard of it")
    found += left_behind()
    found += next_call(call)
    if found:
        cleared()
    return found + retried(call, key, guarantee)


def next_call(call: Callable[[str], int]) -> list[str]:
    """Make another call in the same thread, as a worker does, and return what is wrong with it."""
    key, found = str(next(NUMBERS)), list[str]()
    try:
        call(key)
    except BaseException as error:  # noqa: BLE001 - it is reported
        return [f"the next call raised {error!r}"]
    found += [f"after the next call: {each}" for each in left_behind()]
    if found:
        cleared()
    elif connection.connection is not None:
        connection.rollback()  # what is not committed by now is not
    if attempts(key) != [1] or not is_remembered(key):
        found.append("the next call is not committed")
    return found


def retried(call: Callable[[str], int], key: str, guarantee: str) -> list[str]:
    """Retry the interrupted call, also when its lease is over, and return what is wrong."""
    found, before, remembered = list[str](), attempts(key), is_remembered(key)
    if guarantee == "atomic" and bool(before) is not remembered:
        found.append(f"effects of attempts {before}, remembered: {remembered}")
    try:
        try:
            made = call(key)
        except InProgress:
            records(key).update(lease_until=LONG_AGO)
            made = call(key)
    except BaseException as error:  # noqa: BLE001 - it is reported
        return [*found, f"the retry raised {error!r}"]
    after = attempts(key)
    if remembered and after != before:
        found.append("the retry ran again")
    if not Effect.objects.filter(pk=made, idempotency_key=key).exists():
        found.append("a success without its writes")
    if len(after) > (1 if guarantee == "atomic" else 2) or len(after) != len(set(after)):
        found.append(f"effects of attempts {after}")
    return found


# -------------------------------------------------------------------------------------- all of them


def lines_of(call: Callable[[str], int], prepare: Callable[..., str]) -> list[Line]:
    """Return the lines between the claim and the end of the settle; of a line that runs often, the
    first and the last time.
    """
    for _ in range(2):  # warm up
        call(str(next(NUMBERS)))
    noted = Interrupt()
    with suppress(WorkFailed):
        noted(partial(call, prepare(call, str(next(NUMBERS)))))
    begins = next(at for at, line in enumerate(noted.lines) if line.function == "open")
    times = defaultdict[tuple[str, int], list[Line]](list)
    for at, line in enumerate(noted.lines):
        if not is_plain(line) and (at >= begins or line.file.startswith("rest_framework/")):
            times[line[:2]].append(line)
    return [line for each in times.values() for line in dict.fromkeys((each[0], each[-1]))]


def is_shared(line: Line) -> bool:
    """Does a line run for each entry point alike?

    A function's and REST framework's calls raise at all of them.
    """
    return line.file.startswith(("engine/", "stores/", "instrumentation/", "runtime/"))


def is_plain(line: Line) -> bool:
    """Does a line only compute?"""
    computes = line.file.startswith("core/") and not line.file.startswith("core/serialization/")
    return computes or line.file in {"stores/orm/statements.py", "http/plan.py"}


CASES = [
    ("function", "atomic", first),
    ("function", "atomic", failing),
    ("function", "atomic", abandoned),
    ("function", "lease", first),
    ("function", "lease", failing),
    ("function", "lease", abandoned),
    ("nested", "atomic", first),
    ("decorator", "atomic", first),
    ("decorator", "lease", first),
    ("decorator", "atomic", failing),
    ("middleware", "atomic", first),
    ("middleware", "lease", first),
    ("drf", "atomic", first),
    ("drf", "atomic", failing),
    ("drf", "lease", first),
    ("surrounded", "atomic", first),
    ("surrounded", "atomic", failing),
]


@pytest.mark.parametrize(("name", "guarantee", "prepare"), CASES)
def test_an_interrupt_leaves_nothing_behind(
    name: str, guarantee: str, prepare: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    """No current operation, open transaction, lease or lock is left, the next call is committed,
    and a retry ends right.
    """
    heartbeat._watched.clear()  # another test's call may have been left as its process leaves it
    caplog.set_level(logging.CRITICAL, "django_idempotency")
    caplog.set_level(logging.CRITICAL, "django.request")
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA synchronous=OFF")
    middleware = [f"{MODULE}.SignedIn"]
    if name == "middleware":
        middleware.append("django_idempotency.middleware.IdempotencyMiddleware")
    with override_settings(
        MIDDLEWARE=middleware, ROOT_URLCONF=MODULE, IDEMPOTENCY={"GUARANTEE": guarantee}
    ):
        call = entry(name, guarantee)
        lines = lines_of(call, prepare)
        if (name, prepare) not in {("function", prepare), ("nested", first), ("drf", first)}:
            lines = [line for at, line in enumerate(lines) if not is_shared(line) or at % 3 == 0]
        found = reported(call, prepare, lines, guarantee)
    assert len(lines) > 50
    assert not found, "\n".join(found)


def reported(
    call: Callable[[str], int], prepare: Callable[..., str], lines: Sequence[Line], guarantee: str
) -> list[str]:
    found = []
    for line in lines:
        for error in (TimeLimit, HardLimit):
            key = prepare(call, str(next(NUMBERS)))
            each = copy_context().run(wrong, call, key, line, error, guarantee)
            found += [f"{error.__name__} at {line}: {one}" for one in each]
    return found
