"""A second server like AWS's, beside moto, and a Kafka broker that is not librdkafka's own."""

from __future__ import annotations

import subprocess

from . import obtaining
from .running import Result, run

BROKERS = "tests/contrib/outbox/brokers"
OPTIONS = ("-p", "no:randomly")
#: The store of DynamoDB and its table, and what the outbox publishes to SQS FIFO and EventBridge.
ON_AWS = (
    "tests/stores/dynamodb",
    "tests/management/test_idempotency_stores.py",
    f"{BROKERS}/test_aws.py",
)
#: These run on other servers, too.
ALSO_ON_AWS = (
    "tests/stores/test_store_faults.py",
    "tests/faults/test_kills_elsewhere.py",
    "tests/checks/test_store_servers.py",
    "tests/contrib/at_rest/sealed/test_canary.py",
)


def on_ministack() -> Result:
    environment = {"DATABASE": "sqlite", "AWS_SERVER": str(obtaining.ministack())}
    counts = run(ON_AWS, environment, *OPTIONS)
    counts += run(ALSO_ON_AWS, environment, *OPTIONS, "-k", "dynamodb")
    return Result(version=obtaining.MINISTACK.replace("==", " "), counts=counts)


def on_tansu() -> Result:
    program = str(obtaining.tansu())
    version = subprocess.run(
        [program, "--version"], capture_output=True, text=True, timeout=10, check=True
    )
    environment = {"DATABASE": "sqlite", "KAFKA_SERVER": program}
    counts = run([f"{BROKERS}/test_kafka.py", f"{BROKERS}/test_consumer.py"], environment, *OPTIONS)
    return Result(version=version.stdout.strip(), counts=counts)
