"""The 24 scenarios that idemkit publishes for implementations of its specification
(`spec/conformance.yaml`), in our words.

Twelve are of HTTP, six of consumers of messages, six of tools that a language model calls. The last
two kinds are functions here.
"""

from __future__ import annotations

from typing import Any

from .anyonce import MARKER
from .steps import ANY, Scenario, Step, Wanted, Work

_ONCE = Wanted(status=201, runs=1)
_REPLAY = Wanted(status=201, runs=1, headers={MARKER: "true"})
_WAITS: dict[str, Any] = {"wait": 20}
_TOOL: dict[str, Any] = {"key": "[origin, destination]"}
_FLIGHT = {"origin": "SFO", "destination": "JFK"}

HTTP = (
    Scenario(
        name="basic-replay",
        says="A retry gets the first response, marked.",
        steps=(
            Step(wanted=Wanted(status=201, runs=1, headers={MARKER: None})),
            Step(wanted=_REPLAY),
        ),
    ),
    Scenario(
        name="payload-mismatch",
        says="Another body under the key is refused, with a type of its own.",
        steps=(
            Step(wanted=_ONCE),
            Step(body="b", wanted=Wanted(status=422, runs=1, code="payload-mismatch")),
        ),
    ),
    Scenario(
        name="concurrent-same-key-exactly-once",
        says="Of 50 requests at once one runs, and all get its response.",
        steps=(Step(at_once=50, wanted=Wanted(runs=1, identical=True)),),
        terms=_WAITS,
    ),
    Scenario(
        name="in-flight-wait-then-replay",
        says="A retry that comes while the first request runs waits for the response.",
        steps=(Step(meanwhile=Step(wanted=_REPLAY), wanted=Wanted(status=201)),),
        terms=_WAITS,
    ),
    Scenario(
        name="in-flight-wait-timeout",
        says="If it has waited long enough, it is refused and told when to come back.",
        steps=(
            Step(
                meanwhile=Step(
                    wanted=Wanted(
                        status=423, runs=1, code="in-progress", headers={"Retry-After": ANY}
                    )
                )
            ),
        ),
        terms={"wait": 0.05},
    ),
    Scenario(
        name="crash-recovery-lease-expiry",
        says="The process dies. Once the lease has ended, a retry runs.",
        steps=(
            Step(work=Work(raises=SystemExit)),
            Step(after=0.6, wanted=Wanted(status=201, runs=2)),
        ),
        terms={"lease": 0.3},
    ),
    Scenario(
        name="5xx-not-cached-by-default",
        says="After a 500 the key runs again.",
        steps=(
            Step(work=Work(status=500), wanted=Wanted(status=500, runs=1)),
            Step(wanted=Wanted(status=201, runs=2)),
        ),
    ),
    Scenario(
        name="cross-tenant-isolation",
        says="The same key of another client is another key.",
        steps=(
            Step(
                caller="tenant-A",
                body="tenant-A",
                wanted=Wanted(status=201, runs=1, contains="tenant-A"),
            ),
            Step(
                caller="tenant-B",
                body="tenant-B",
                wanted=Wanted(status=201, runs=2, contains="tenant-B", headers={MARKER: None}),
            ),
        ),
    ),
    Scenario(
        name="missing-key-when-required",
        says="A request without the required key is refused, with a type of its own.",
        steps=(Step(key=None, wanted=Wanted(status=400, runs=0, code="missing-key")),),
        terms={"required": True},
    ),
    Scenario(
        name="response-headers-preserved",
        says="A replay has the safe headers of the first response, and no cookie.",
        steps=(
            Step(
                work=Work(
                    headers={
                        "Location": "/resources/abc123",
                        "ETag": '"v1"',
                        "Set-Cookie": "session=secret",
                    }
                )
            ),
            Step(
                wanted=Wanted(
                    status=201,
                    runs=1,
                    headers={
                        "Location": "/resources/abc123",
                        "ETag": '"v1"',
                        MARKER: "true",
                        "Set-Cookie": None,
                    },
                )
            ),
        ),
    ),
    Scenario(
        name="corrupt-record-treated-as-absent",
        says="A record that cannot be read counts as none: the work runs.",
        steps=(Step(wanted=_ONCE), Step(damaged=True, wanted=Wanted(status=201, runs=2))),
    ),
    Scenario(
        name="body-size-exceeded-bypass",
        says="A response that is too long is not stored, which a header says. A retry runs again.",
        steps=(
            Step(
                work=Work(status=200, body="x" * 2048),
                wanted=Wanted(
                    status=200, runs=1, headers={"Idempotency-Replay-Unavailable": "size-exceeded"}
                ),
            ),
            Step(wanted=Wanted(runs=2)),
        ),
        terms={"max_body": 1024},
    ),
)

QUEUE = (
    Scenario(
        name="queue-at-least-once-dedup",
        says="A message that is delivered five times is handled once, and acknowledged each time.",
        steps=tuple(Step(wanted=Wanted(runs=1, ending="Acknowledge")) for _ in range(5)),
    ),
    Scenario(
        name="queue-concurrent-redelivery",
        says="Of eight deliveries at once one is handled.",
        steps=(Step(at_once=8, wanted=Wanted(runs=1)),),
    ),
    Scenario(
        name="queue-crash-recovery",
        says="The consumer falls silent. Once the lease has ended, the next delivery is "
        "handled; the first is fenced out.",
        steps=(
            Step(
                meanwhile=Step(
                    after=60,
                    work=Work(returns="second"),
                    wanted=Wanted(runs=2, ending="Acknowledge"),
                ),
                work=Work(returns="first"),
            ),
            Step(wanted=Wanted(runs=2, body="second")),
        ),
    ),
    Scenario(
        name="queue-lease-shorter-than-visibility",
        says="A lease as long as the broker's visibility timeout is refused.",
        lacks="visibility timeout",
    ),
    Scenario(
        name="queue-poison-dlq",
        says="A handler that always fails is tried three times, then the message is set aside.",
        steps=(
            Step(work=Work(raises=OSError), wanted=Wanted(runs=1, ending="Redeliver")),
            Step(work=Work(raises=OSError), wanted=Wanted(runs=2, ending="Redeliver")),
            Step(work=Work(raises=OSError), wanted=Wanted(runs=3, ending="DeadLetter")),
        ),
    ),
    Scenario(
        name="queue-result-bearing-replay",
        says="A second delivery gets the result of the first.",
        steps=(
            Step(work=Work(returns="receipt"), wanted=Wanted(runs=1)),
            Step(wanted=Wanted(runs=1, same_as=1)),
        ),
    ),
)

TOOLS = (
    Scenario(
        name="tool-retry-dedup",
        says="Five calls with the same arguments run once, and return the same.",
        steps=(
            Step(arguments=_FLIGHT, wanted=Wanted(runs=1)),
            *(Step(arguments=_FLIGHT, wanted=Wanted(runs=1, same_as=1)) for _ in range(4)),
        ),
        terms=_TOOL,
    ),
    Scenario(
        name="tool-arg-normalization",
        says="An argument that is not selected does not count; one that is, does.",
        steps=(
            Step(arguments={**_FLIGHT, "request_id": "r1"}, wanted=Wanted(runs=1)),
            Step(arguments={**_FLIGHT, "request_id": "r2"}, wanted=Wanted(runs=1, same_as=1)),
            Step(
                arguments={**_FLIGHT, "destination": "LAX", "request_id": "r3"},
                wanted=Wanted(runs=2),
            ),
        ),
        terms=_TOOL,
    ),
    Scenario(
        name="tool-concurrent-calls",
        says="Of ten calls at once one runs.",
        steps=(Step(arguments=_FLIGHT, at_once=10, wanted=Wanted(runs=1)),),
        terms={**_TOOL, **_WAITS},
    ),
    Scenario(
        name="tool-crash-recovery",
        says="After an exception the next call runs.",
        steps=(
            Step(
                arguments=_FLIGHT,
                work=Work(raises=OSError),
                wanted=Wanted(runs=1, ending="OSError"),
            ),
            Step(arguments=_FLIGHT, wanted=Wanted(runs=2, ending="returned")),
        ),
        terms=_TOOL,
    ),
    Scenario(
        name="tool-unserializable-result-fails-closed",
        says="A result that cannot be stored is an error, and the next call does not run.",
        steps=(
            Step(
                arguments=_FLIGHT,
                work=Work(returns=object()),
                wanted=Wanted(runs=1, ending="an error"),
            ),
            Step(arguments=_FLIGHT, wanted=Wanted(runs=1, ending="an error")),
        ),
        terms=_TOOL,
    ),
    Scenario(
        name="tool-pickle-opt-in-warns",
        says="A project that stores results as pickles is warned.",
        lacks="pickle",
    ),
)
