"""`kill -9` of a worker whose records are on another server, in Redis or in DynamoDB: real workers,
real servers.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..stores.dynamodb.server import REGION, make_store, make_table
from ..support.services import needs_redis
from ..support.store_servers import AWSServer, RedisServer, running
from .clients import Customer, assert_first, assert_replay, assert_unanswered, new_key
from .database import effects, sent
from .plans import SHORT_LEASE, Faults
from .servers import Server, gunicorn

pytestmark = [
    pytest.mark.faults,
    pytest.mark.either_server,
    pytest.mark.django_db(transaction=True),
]

PATH = "/lease/sent/"
#: Unless the test is about time, a busy machine is not a frozen server.
TIMEOUT = 5
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": REGION,
}


@pytest.fixture(scope="module", params=[pytest.param("redis", marks=needs_redis), "dynamodb"])
def elsewhere(
    request: pytest.FixtureRequest, faults_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """Return gunicorn, with a separate server for the records."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "redis":
        with running(RedisServer(folder)) as redis:
            given = {"STORE": "FaultRedisStore", "STORE_OPTIONS": json.dumps({"timeout": TIMEOUT})}
            with gunicorn(folder, REDIS_URL=redis.url, **given) as server:
                yield server
        return
    with running(AWSServer()) as dynamodb:
        made = make_table(make_store(dynamodb.url))
        options = {"table": made.schema.table, "endpoint_url": dynamodb.url, "timeout": TIMEOUT}
        given = {"STORE": "FaultDynamoDBStore", "STORE_OPTIONS": json.dumps(options)}
        with gunicorn(folder, **given, **CREDENTIALS) as server:
            yield server


@pytest.mark.parametrize(
    ("point", "charged"),
    [
        ("claimed", 1),  # before the work
        ("viewing", 2),  # in the middle of it
        ("settling", 2),  # after it, and nothing is stored
    ],
)
def test_killed_before_the_settle(
    elsewhere: Server, stranger: Customer, faults: Faults, point: str, charged: int
) -> None:
    """The key is busy while the lease lives; then attempt 2 uses the same downstream key; then its
    response replays.
    """
    elsewhere.await_ready()
    fault = faults(new_key(), point, "kill")
    began = time.monotonic()
    first = stranger.begin(elsewhere, PATH, fault.key)
    fault.await_reached()
    assert_unanswered(first)
    answer, _ = stranger.insist(elsewhere, PATH, fault.key)
    assert time.monotonic() - began >= SHORT_LEASE  # any earlier request got "in progress"
    assert_first(answer)
    assert answer.json()["attempt"] == 2
    # Two runs, and one charge downstream: it has seen the key before.
    assert effects(fault.key) == charged
    assert sent(fault.key) == [answer.json()["downstream"]] * charged
    assert_replay(stranger.post(elsewhere, PATH, fault.key), answer)
    assert effects(fault.key) == charged


def test_killed_after_the_settle(elsewhere: Server, stranger: Customer, faults: Faults) -> None:
    """A settled record is replayed at once."""
    elsewhere.await_ready()
    fault = faults(new_key(), "settled", "kill")
    first = stranger.begin(elsewhere, PATH, fault.key)
    fault.await_reached()
    assert_unanswered(first)
    replayed = stranger.post(elsewhere, PATH, fault.key)
    assert_replay(replayed)
    assert (effects(fault.key), replayed.json()["attempt"]) == (1, 1)


def test_a_crowd_retries_after_a_kill(
    elsewhere: Server, stranger: Customer, faults: Faults
) -> None:
    """Of 20 retries at once for a dead worker's key one runs, and the others get its response."""
    elsewhere.await_ready()
    fault = faults(new_key(), "viewing", "kill")
    first = stranger.begin(elsewhere, PATH, fault.key)
    fault.await_reached()
    crowd = [stranger.begin_insisting(elsewhere, PATH, fault.key) for _ in range(20)]
    answers = [future.result()[0] for future in crowd]
    assert_unanswered(first)
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.content for answer in answers}) == 1
    assert (effects(fault.key), len(set(sent(fault.key)))) == (2, 1)
