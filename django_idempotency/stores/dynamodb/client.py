"""How the DynamoDB store reaches its server: short timeouts, boto's retries, one client per
process, two exceptions.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured

from ...core.concurrency import holding, new_lock, reset_in_children
from ...errors import INSTALL, StoreUnavailable

if TYPE_CHECKING:
    from .items import Item

#: Tries of one request, as botocore's "standard" mode counts them.
ATTEMPTS = 2
#: The longest pause before another try, in seconds.
PAUSE = 0.2
#: The table's throughput is exceeded.
THROTTLED = frozenset(
    {"ThrottlingException", "ProvisionedThroughputExceededException", "RequestLimitExceeded"}
)


class DynamoDBClient:
    """A boto3 client, built at first use and anew in a forked process. Thread safe, as boto3's
    clients are.
    """

    def __init__(
        self,
        *,
        timeout: float,
        where: Mapping[str, str | None],
        config: Any,
        session: Any,
        client: Any,
    ) -> None:
        """`where`: the region and the address, as boto3 takes them."""
        if client is None and find_spec("boto3") is None:
            raise ImproperlyConfigured(
                "DynamoDBStore needs boto3, which is not installed. Type: "
                + INSTALL.format("dynamodb")
            )
        self._timeout = timeout
        self._where = where
        self._config = config
        self._session = session
        self._given = client
        #: The server. Two clients with equal values use the same server.
        self.location = (*where.values(), session, client)
        self._built: Any = None
        self._lock = new_lock()
        reset_in_children(self)

    # ------------------------------------------------------------------------------------- requests

    def ask(self, operation: str, **arguments: Any) -> dict[str, Any]:
        with translated():
            return self._call(operation, arguments)

    def _call(self, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = getattr(self.boto, operation)(**arguments)
        headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders")
        # A successful put has an empty response. Without this check, any 200 from a proxy would
        # count as one.
        if headers is not None and not headers.get("content-type", "").startswith(
            "application/x-amz-json"
        ):
            raise StoreUnavailable("Something other than DynamoDB responded. Check the endpoint.")
        return answer

    def write(self, operation: str, **arguments: Any) -> tuple[bool, Item | None]:
        """Make a conditional write.

        Return whether its condition held; if not, the item, if the request asks for it.

        Raises `StoreUnavailable`.
        """
        with translated():
            try:
                self._call(operation, arguments)
            # Not by its other classes, which two threads may each make for themselves.
            except self.boto.exceptions.ClientError as error:
                if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
                    raise
                return False, error.response.get("Item")
        return True, None

    # -------------------------------------------------------------------------------------- clients

    @property
    def boto(self) -> Any:
        if self._given is not None:
            return self._given
        if self._built is None:
            holding(self._lock, self._build_once)
        return self._built

    def _build_once(self) -> None:
        if self._built is None:
            self._built = self._build(self._timeout)

    def patient(self) -> Any:
        """Return a client for slow requests (up to 10 s), such as creating a table."""
        return self._build(10.0) if self._given is None else self._given

    def reset_after_fork(self) -> None:
        """Rebuild the client on its next use: the connections belong to the parent process."""
        self._built = None

    def _build(self, timeout: float) -> Any:
        import boto3
        from botocore.config import Config

        ours = Config(
            connect_timeout=timeout,
            read_timeout=timeout,
            retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
            max_pool_connections=50,
            tcp_keepalive=True,
        )
        try:
            # Not boto3's own default, which other threads may be using.
            session = self._session or boto3.Session()
            client = session.client(
                "dynamodb", config=ours.merge(self._config or Config()), **self._where
            )
        except ValueError as error:  # not one of botocore's errors: an endpoint that is not a URL
            raise ImproperlyConfigured(f"The OPTIONS of a DynamoDBStore: {error}") from error
        client.meta.events.register_first(
            "needs-retry.dynamodb", _Pauses(client.meta.config.retries)
        )
        return client


class _Pauses:
    """Chooses the pause before a retry. By boto's own rule it could be a second, or five if the
    server asks for that.

    After a timeout there is no pause. After throttling or a server error it is random, and at most
    PAUSE seconds.
    """

    def __init__(self, retries: dict[str, Any] | None) -> None:
        self._attempts = (retries or {}).get("total_max_attempts", 1)

    def __call__(
        self,
        *,
        attempts: int,
        response: tuple[Any, Any] | None,
        caught_exception: Exception | None,
        **_: Any,
    ) -> float | None:
        from botocore.exceptions import ConnectTimeoutError, ReadTimeoutError

        if attempts >= self._attempts:
            return None
        if isinstance(caught_exception, (ConnectTimeoutError, ReadTimeoutError)):
            return 0.0
        if response is not None:
            http, answer = response
            if http.status_code >= 500 or answer.get("Error", {}).get("Code") in THROTTLED:
                return random.uniform(0, PAUSE)  # noqa: S311 - no secret
        return None  # as boto decides


@contextmanager
def translated() -> Iterator[None]:
    """Turn any exception of botocore into `StoreUnavailable`."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        if error.response["Error"]["Code"] == "ResourceNotFoundException":
            raise StoreUnavailable(
                "The table of the idempotency store does not exist. Type: manage.py "
                "idempotency_stores create"
            ) from error
        raise StoreUnavailable from error
    except BotoCoreError as error:
        raise StoreUnavailable from error
