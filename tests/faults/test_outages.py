"""The database goes away: before the view, during it, and at COMMIT."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from django.db import connection

from django_idempotency.core.records import Status
from testproject.settings import DATABASE

from .clients import Customer, assert_first, assert_replay, new_key
from .database import AT_COMMIT, charges, effects, end_session, record
from .plans import Faults, lost
from .proxy import Proxy
from .servers import Server, gunicorn, uvicorn

pytestmark = [pytest.mark.faults, pytest.mark.django_db(transaction=True)]

#: Each entry point, open to customers without a database row.
OPEN_PATHS = ("/open/middleware/", "/open/decorator/", "/open/mixin/")
needs_server = pytest.mark.skipif(
    connection.vendor == "sqlite", reason="SQLite has no server to lose"
)


@pytest.fixture(scope="module")
def far(
    faults_folder: Path, proxy: Proxy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """Return gunicorn with a database behind the proxy."""
    place = f"{DATABASE.upper()}_PORT"
    with gunicorn(tmp_path_factory.mktemp("far"), **{place: str(proxy.port)}) as server:
        yield server


@pytest.fixture(scope="module")
def far_asgi(
    faults_folder: Path, proxy: Proxy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """Return uvicorn with a database behind the proxy."""
    place = f"{DATABASE.upper()}_PORT"
    with uvicorn(tmp_path_factory.mktemp("far_asgi"), **{place: str(proxy.port)}) as server:
        yield server


@needs_server
@pytest.mark.parametrize("path", OPEN_PATHS)
def test_no_database_before_the_view(
    far: Server, proxy: Proxy, stranger: Customer, path: str
) -> None:
    """The client gets 503 with a retry time, and nothing ran; the same key works when the database
    is back.
    """
    assert_first(stranger.post(far, path, new_key()))  # its connection will be found broken
    key = new_key()
    proxy.cut()
    try:
        for answer in stranger.burst(far, path, [key] * 5):
            assert_unavailable(answer, "store-unavailable")
    finally:
        proxy.mend()
    assert effects(key) == 0
    answer, _ = stranger.insist(far, path, key)
    assert_first(answer)
    assert (effects(key), record(key).attempt) == (1, 1)


@pytest.mark.sqlite
@pytest.mark.skipif(connection.vendor != "sqlite", reason="the others have a server to lose")
def test_no_file_before_the_view(
    stranger: Customer, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The same holds if the database is a file whose disk is not mounted."""
    database = Path(connection.settings_dict["NAME"])
    mount = tmp_path / "mount"
    with gunicorn(
        tmp_path_factory.mktemp("far"), DATABASE_NAME=str(mount / database.name)
    ) as server:
        key = new_key()
        for path in OPEN_PATHS:
            assert_unavailable(stranger.post(server, path, key), "store-unavailable")
        mount.symlink_to(database.parent)
        assert_first(stranger.post(server, OPEN_PATHS[0], key))
    assert effects(key) == 1


@needs_server
@pytest.mark.parametrize("path", OPEN_PATHS)
def test_cut_off_in_the_view(fleet: Server, stranger: Customer, faults: Faults, path: str) -> None:
    """A session that ends during the view undoes the effect: 503, and the retry runs."""
    guard = faults(new_key(), "guarded", "pause")
    fault = faults(guard.key, "viewing", "pause")
    first = stranger.begin(fleet, path, fault.key)
    session = guard.await_reached().session
    guard.go_on()
    fault.await_reached()
    end_session(session)
    fault.go_on()
    assert_unavailable(first.result(), "transaction-lost")
    answer, _ = stranger.insist(fleet, path, fault.key)
    assert_first(answer)
    assert effects(fault.key) == 1


@needs_server
@pytest.mark.parametrize("path", OPEN_PATHS)
def test_cut_off_before_the_views_own_statement(
    fleet: Server, stranger: Customer, faults: Faults, path: str
) -> None:
    """The view raises its own exception, as without us: 500, the key is free, and the retry
    runs.
    """
    fault = faults(new_key(), "writing", "pause")
    first = stranger.begin(fleet, path, fault.key)
    fault.await_reached()
    end_session(fault.session)
    fault.go_on()
    assert first.result().status_code == 500
    answer, _ = stranger.insist(fleet, path, fault.key)
    assert_first(answer)
    assert (effects(fault.key), record(fault.key).attempt) == (1, 2)


@needs_server
@pytest.mark.parametrize("point", ["settled", "committing"])
@pytest.mark.parametrize("path", OPEN_PATHS)
def test_cut_off_before_commit(
    fleet: Server, stranger: Customer, faults: Faults, point: str, path: str
) -> None:
    """COMMIT fails: 503, and an unknown outcome is reported by `lost`; the retry finds nothing
    committed, and runs.
    """
    fault = faults(new_key(), point, "pause")
    first = stranger.begin(fleet, path, fault.key)
    fault.await_reached()
    end_session(fault.session)
    fault.go_on()
    assert_unavailable(first.result(), AT_COMMIT)
    assert (fault.key in lost()) is (AT_COMMIT == "outcome-unknown")
    answer, _ = stranger.insist(fleet, path, fault.key)
    assert_first(answer)
    assert (effects(fault.key), record(fault.key).attempt) == (1, 2)


def test_commit_fails(fleet: Server, stranger: Customer) -> None:
    """A deferred constraint is broken: 500 as without us; neither effect nor response is kept, and
    the retry runs.
    """
    key = new_key()
    assert stranger.post(fleet, "/open/orphaned/", key).status_code == 500
    assert (effects(key), record(key).status) == (0, Status.FREE.value)
    answer = stranger.post(fleet, "/open/orphaned/", key)
    assert_first(answer)
    assert (effects(key), charges(), answer.json()["attempt"]) == (1, 0, 2)


@needs_server
@pytest.mark.parametrize("path", OPEN_PATHS)
def test_the_answer_to_commit_is_lost(
    far: Server, proxy: Proxy, stranger: Customer, faults: Faults, path: str
) -> None:
    """COMMIT succeeds, but its response is lost: 503 `outcome-unknown`, and the retry gets the
    first response.
    """
    fault = faults(new_key(), "committing", "pause")
    first = stranger.begin(far, path, fault.key)
    fault.await_reached()
    proxy.swallow()
    try:
        fault.go_on()
        assert_unavailable(first.result(), "outcome-unknown")
    finally:
        proxy.mend()
    assert_replay(stranger.insist(far, path, fault.key)[0])
    assert (effects(fault.key), record(fault.key).attempt) == (1, 1)


@needs_server
@pytest.mark.parametrize("point", ["viewing", "settled", "committing"])
def test_no_database_any_more(
    far: Server, proxy: Proxy, stranger: Customer, faults: Faults, point: str
) -> None:
    """It goes away during the view and is not back for the rollback: 503, and a later retry
    runs.
    """
    fault = faults(new_key(), point, "pause")
    first = stranger.begin(far, "/open/decorator/", fault.key)
    fault.await_reached()
    proxy.cut()
    try:
        fault.go_on()
        assert first.result().status_code == 503
        assert int(first.result().headers["Retry-After"]) >= 1
    finally:
        proxy.mend()
    answer, _ = stranger.insist(far, "/open/decorator/", fault.key)
    assert_first(answer)
    assert (effects(fault.key), record(fault.key).attempt) == (1, 2)


@needs_server
@pytest.mark.parametrize("path", ["/lease/long/", "/async/long/"])
def test_no_database_after_the_work_of_a_lease(
    request: pytest.FixtureRequest, proxy: Proxy, stranger: Customer, faults: Faults, path: str
) -> None:
    """The response goes out; the database returns within the lease, and a retry gets the replay:
    one effect.
    """
    server = request.getfixturevalue("far_asgi" if path.startswith("/async/") else "far")
    fault = faults(new_key(), "settling", "pause")
    first = stranger.begin(server, path, fault.key)
    fault.await_reached()
    proxy.cut()
    try:
        fault.go_on()
        assert_first(first.result())
        assert first.result().headers["Idempotency-Status"] == "lost"  # it is not settled yet
        assert_unavailable(stranger.post(server, path, fault.key), "store-unavailable")
    finally:
        proxy.mend()
    assert_replay(stranger.insist(server, path, fault.key)[0], first.result())
    assert (effects(fault.key), record(fault.key).attempt) == (1, 1)
    assert fault.key not in lost()


@needs_server
def test_cut_off_after_commit(fleet: Server, customer: Customer, faults: Faults) -> None:
    """A session that ends after COMMIT changes nothing: the response is 201, and every retry gets a
    replay.

    On MariaDB it may be `outcome-unknown`: Django sends one more command before it considers a
    transaction committed.
    """
    fault = faults(new_key(), "committed", "pause")
    first = customer.begin(fleet, "/api/charges/", fault.key)
    fault.await_reached()
    end_session(fault.session)
    fault.go_on()
    assert_replay(customer.insist(fleet, "/api/charges/", fault.key)[0])
    assert (effects(fault.key), charges()) == (1, 1)
    if connection.vendor == "mysql":
        assert_unavailable(first.result(), "outcome-unknown")
    else:
        assert_first(first.result())


def assert_unavailable(answer: httpx.Response, code: str) -> None:
    assert (answer.status_code, answer.json()["code"]) == (503, code), answer.text
    assert int(answer.headers["Retry-After"]) >= 1
