"""The 20 scenarios that anyonce publishes for any implementation (`conformance/vectors`), in our
words.

The first eleven are what the IETF draft says, the others are anyonce's own choices. Its endpoints
are one view here.
"""

from __future__ import annotations

from typing import Any

from .steps import ANY, Scenario, Step, Wanted, Work

#: The mark of a replay there. A dialect of ours has the same by `marker`.
MARKER = "Idempotency-Replayed"
_ONCE, _AGAIN = Wanted(status=201, runs=1), Wanted(status=201, runs=1, same_as=1)
_LARGE = 1024 * 1024
_REQUIRED: dict[str, Any] = {"required": True}


def _two(first: Step, second: Step) -> tuple[Step, ...]:
    return first, second


SCENARIOS = (
    Scenario(
        name="post-executes-once",
        says="A request with a new key runs.",
        steps=(Step(wanted=_ONCE),),
        terms=_REQUIRED,
    ),
    Scenario(
        name="retry-replays",
        says="A retry gets the first response.",
        steps=_two(Step(wanted=_ONCE), Step(wanted=_AGAIN)),
        terms=_REQUIRED,
    ),
    Scenario(
        name="two-keys-execute-twice",
        says="The same body under two keys is two operations.",
        steps=_two(Step(key="k1", wanted=_ONCE), Step(key="k2", wanted=Wanted(status=201, runs=2))),
        terms=_REQUIRED,
    ),
    Scenario(
        name="mismatch-422",
        says="Another body under the key is refused.",
        steps=_two(Step(wanted=_ONCE), Step(body="b", wanted=Wanted(status=422, runs=1))),
        terms=_REQUIRED,
    ),
    Scenario(
        name="mismatch-does-not-poison",
        says="After that refusal, the first body still gets the first response.",
        steps=(
            Step(wanted=_ONCE),
            Step(body="b", wanted=Wanted(status=422, runs=1)),
            Step(wanted=_AGAIN),
        ),
        terms=_REQUIRED,
    ),
    Scenario(
        name="key-missing-required",
        says="A request without the required key is refused.",
        steps=(Step(key=None, wanted=Wanted(status=400, runs=0)),),
        terms=_REQUIRED,
    ),
    Scenario(
        name="sf-string-quoted-key",
        says="The key may be a string of structured fields, in quotes.",
        steps=_two(Step(key='"k"', wanted=_ONCE), Step(key='"k"', wanted=_AGAIN)),
        terms=_REQUIRED,
    ),
    Scenario(
        name="header-name-case-insensitive",
        says="The name of the header may be spelled in lower case.",
        steps=_two(Step(wanted=_ONCE), Step(header="idempotency-key", wanted=_AGAIN)),
        terms=_REQUIRED,
    ),
    Scenario(
        name="get-ignored",
        says="A key on GET has no effect.",
        steps=(
            Step(method="GET", wanted=Wanted(status=201, runs=1)),
            Step(key="other", wanted=Wanted(status=201, runs=2)),
            Step(method="GET", wanted=Wanted(status=201, runs=3)),
        ),
        terms=_REQUIRED,
    ),
    Scenario(
        name="concurrent-409",
        says="A retry that comes while the first request runs is refused.",
        steps=(Step(meanwhile=Step(wanted=Wanted(status=409, runs=1)), wanted=_ONCE),),
        terms=_REQUIRED,
    ),
    Scenario(
        name="expiry-executes-again",
        says="After the published lifetime the key runs again.",
        steps=_two(Step(wanted=_ONCE), Step(after=2.5, wanted=Wanted(status=201, runs=2))),
        terms={**_REQUIRED, "ttl": 2, "lease": 1},
    ),
    Scenario(
        name="replayed-header",
        says="A replay is marked, the first response is not.",
        steps=_two(
            Step(wanted=Wanted(status=201, headers={MARKER: None})),
            Step(wanted=Wanted(status=201, headers={MARKER: "true"}, same_as=1)),
        ),
        terms=_REQUIRED,
    ),
    Scenario(
        name="4xx-replayed",
        says="A 404 of the view is replayed.",
        steps=_two(
            Step(work=Work(status=404), wanted=Wanted(status=404, runs=1)),
            Step(wanted=Wanted(status=404, runs=1, same_as=1, headers={MARKER: "true"})),
        ),
        terms=_REQUIRED,
    ),
    Scenario(
        name="5xx-not-stored",
        says="After a 500 the key runs again.",
        steps=_two(
            Step(work=Work(status=500), wanted=Wanted(status=500, runs=1)),
            Step(work=Work(status=500), wanted=Wanted(status=500, runs=2, headers={MARKER: None})),
        ),
        terms=_REQUIRED,
    ),
    Scenario(
        name="omitted-body-replay",
        says="A replay of a response that is too long for the store has the status and no body, "
        "and says so.",
        steps=_two(
            Step(
                work=Work(status=200, body="x" * (_LARGE + 1)),
                wanted=Wanted(status=200, length=_LARGE + 1, runs=1),
            ),
            Step(
                wanted=Wanted(
                    status=200,
                    length=0,
                    runs=1,
                    headers={MARKER: "true", "Idempotency-Replay": "omitted"},
                )
            ),
        ),
        terms={**_REQUIRED, "max_body": _LARGE},
    ),
    Scenario(
        name="problem-content-type",
        says="Refusals are problem documents.",
        steps=(
            Step(
                key=None,
                wanted=Wanted(status=400, headers={"Content-Type": "application/problem+json"}),
            ),
            Step(wanted=_ONCE),
            Step(
                body="b",
                wanted=Wanted(status=422, headers={"Content-Type": "application/problem+json"}),
            ),
        ),
        terms=_REQUIRED,
    ),
    Scenario(
        name="problem-code-member",
        says="Refusals have a stable code.",
        steps=(
            Step(key=None, wanted=Wanted(status=400, code="missing-key")),
            Step(wanted=_ONCE),
            Step(body="b", wanted=Wanted(status=422, code="fingerprint-mismatch")),
        ),
        terms=_REQUIRED,
    ),
    Scenario(
        name="empty-key-rejected",
        says="An empty key is none.",
        steps=(Step(key='""', wanted=Wanted(status=400, code="invalid-key", runs=0)),),
        terms=_REQUIRED,
    ),
    Scenario(
        name="key-too-long",
        says="A key of more than 255 characters is refused.",
        steps=(Step(key="a" * 256, wanted=Wanted(status=400, code="invalid-key", runs=0)),),
        terms=_REQUIRED,
    ),
    Scenario(
        name="retry-after-on-409",
        says="The refusal while the first request runs says when to come back.",
        steps=(Step(meanwhile=Step(wanted=Wanted(status=409, headers={"Retry-After": ANY}))),),
        terms=_REQUIRED,
    ),
)
