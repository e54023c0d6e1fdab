"""What the caller of a tool does about a problem."""

from __future__ import annotations

import json

import pytest

from django_idempotency import errors
from django_idempotency.contrib.business_key.models import AlreadyCreated
from django_idempotency.contrib.tools.refusals import problem_of, refusal
from django_idempotency.errors import IdempotencyError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InProgress(), "in-progress"),
        (errors.OwnershipLost(), "in-progress"),
        (errors.HeldForPerson("release the record in the admin"), "operation-held"),
        (errors.CallHeld(), "operation-held"),
        (errors.LeaseLost(), "outcome-unknown"),
        (errors.LostRace(), "try-again"),
        (errors.StoreRefused(), "store-unavailable"),
        (errors.UnhashablePayload("order"), None),  # the tool must be corrected, not its call
        (errors.ConfigurationError("type this"), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_which_problem_an_error_is(error: IdempotencyError, code: str | None) -> None:
    """An error of the guard has a code for the caller of a tool, unless the server is wrong."""
    problem = problem_of(error)
    assert (None if problem is None else problem.code) == code


def test_what_is_said() -> None:
    """A program reads it in one member, a model in the text; nothing names a header that a tool has
    not.
    """
    result = refusal(errors.InProgress(headers={"Retry-After": "7"}))
    said = result["structuredContent"]
    assert (said["code"], said["retry"], said["retry_after"]) == ("in-progress", "same-key", 7)
    assert "Retry-After" not in said["detail"]
    assert (json.loads(result["content"][0]["text"]), result["isError"]) == (said, True)


def test_nothing_of_the_server_is_said() -> None:
    """The name of the function, and what an operator does, are no agent's business."""
    for error in (errors.KeyMissing("This call of shop.charge"), errors.HeldForPerson("manage.py")):
        problem = problem_of(error)
        assert problem is not None
        assert not {"shop.charge", "manage.py"} & set(
            refusal(problem)["structuredContent"]["detail"].split()
        )


def test_where_it_is() -> None:
    """What exists already is named by its address."""
    assert (
        refusal(AlreadyCreated(headers={"Location": "/orders/7/"}))["structuredContent"]["location"]
        == "/orders/7/"
    )
