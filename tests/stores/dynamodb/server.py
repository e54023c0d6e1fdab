"""A DynamoDB-compatible server over HTTP, and stores that use it.

moto differs from DynamoDB in what our tests touch: it refuses updates that leave an item over
405,000 bytes instead of 409,600 (our own limit is below both), and never throttles.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from django_idempotency.stores.dynamodb import DynamoDBStore

from ..test_memory import Clock

if TYPE_CHECKING:  # these names are imported by tests that do without boto3, too
    import boto3
    from botocore.awsrequest import AWSPreparedRequest, AWSResponse

REGION = "eu-central-1"


@cache
def session() -> boto3.Session:
    """Return credentials that need no profile, file or metadata service."""
    import boto3

    return boto3.Session(
        aws_access_key_id="testing", aws_secret_access_key="testing", region_name=REGION
    )


def make_store(endpoint: str, **options: Any) -> DynamoDBStore:
    """Return a store with its own table name; the table does not exist yet."""
    given = {
        "table": f"test-{uuid4()}",
        "endpoint_url": endpoint,
        "session": session(),
        "clock": Clock(),
        "timeout": 30,  # unless the test is about time, a busy machine is not a frozen server
        **options,
    }
    return DynamoDBStore(**given)


def make_table(store: DynamoDBStore) -> DynamoDBStore:
    for _ in store.create_table():
        pass
    return store


def item(store: DynamoDBStore) -> dict[str, Any]:
    """Return the only item of a store's table, as DynamoDB stores it."""
    (found,) = store.client.boto.scan(TableName=store.schema.table, ConsistentRead=True)["Items"]
    return dict(found)


@contextmanager
def asked(store: DynamoDBStore) -> Iterator[list[str]]:
    """Collect the HTTP requests of a store, including retries, by the name of the operation."""
    requests: list[str] = []
    events = store.client.boto.meta.events

    def note(*, event_name: str, **_: Any) -> None:
        requests.append(event_name.rpartition(".")[2])

    events.register_first("before-send.dynamodb", note)
    yield requests
    events.unregister("before-send.dynamodb", note)


#: A lost response: the request is carried out, but the client gets nothing.
LOST = object()


@contextmanager
def answered(store: DynamoDBStore, *answers: Any) -> Iterator[None]:
    """Give these responses to the next requests: an error's code, its document, or `LOST`.

    `None` asks the server.
    """
    from botocore.awsrequest import AWSResponse
    from botocore.exceptions import ReadTimeoutError
    from botocore.httpsession import URLLib3Session

    left = list(answers)
    events = store.client.boto.meta.events

    def answer(*, request: AWSPreparedRequest, **_: Any) -> AWSResponse | None:
        given = left.pop(0) if left else None
        if given is None:
            return None
        if given is LOST:
            http = URLLib3Session()
            assert http.send(request).status_code in (200, 400)
            http.close()
            raise ReadTimeoutError(endpoint_url=request.url)
        document = {"__type": given, "message": given} if isinstance(given, str) else given
        return AWSResponse(request.url, 400, {}, _Raw(json.dumps(document).encode()))

    events.register_last("before-send.dynamodb", answer)
    try:
        yield
    finally:
        events.unregister("before-send.dynamodb", answer)
    assert not left, f"never asked for {left}"


class _Raw:
    """What urllib3 would have read."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self) -> Iterator[bytes]:
        yield self._body
