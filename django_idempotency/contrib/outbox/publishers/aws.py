"""What the publishers over boto3 share: a client with short time-outs, and whose fault an error
is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

from ....errors import BrokerUnavailable

#: A transaction of the database is open while a request waits.
TIMES = {
    "connect_timeout": 3,
    "read_timeout": 5,
    "retries": {"mode": "standard", "total_max_attempts": 2},
}
#: Errors about one message. All others are the service's, the network's or the credentials': they
#: concern every message.
REFUSED = frozenset(
    {
        "413",
        "AWS.SimpleQueueService.NonExistentQueue",
        "AWS.SimpleQueueService.UnsupportedOperation",
        "InvalidArgument",
        "InvalidMessageContents",
        "InvalidParameterValue",
        "MalformedDetail",
        "MissingParameter",
        "NotAuthorizedForDetailTypeException",
        "NotAuthorizedForSourceException",
        "QueueDoesNotExist",
        "RequestEntityTooLarge",
        "ResourceNotFoundException",
        "UnsupportedOperation",
        "ValidationError",
        "ValidationException",
    }
)


class Refused(Exception):
    """AWS refuses a message."""


class OverBoto:
    """A publisher with a client of one service."""

    #: Arguments of `boto3.client()`, such as `region_name`.
    options: Mapping[str, Any] = {}

    def client(self, service: str) -> Any:
        return boto3.client(service, **{"config": Config(**TIMES), **self.options})


def refusal(code: str, said: str) -> Exception:
    """Return the exception for an error of AWS."""
    return (Refused if code in REFUSED else BrokerUnavailable)(f"{code}: {said}")


@contextmanager
def translated() -> Iterator[None]:
    """Raise `Refused` for what concerns one message, and `BrokerUnavailable` for everything
    else.
    """
    try:
        yield
    except ClientError as error:
        raise refusal(error.response["Error"]["Code"], str(error)) from error
    except ParamValidationError as error:
        raise Refused(str(error)) from error
    except BotoCoreError as error:
        raise BrokerUnavailable(str(error)) from error
