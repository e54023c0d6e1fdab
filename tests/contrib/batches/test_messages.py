"""What happens to a message: the table, row by row, and the page that shows it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from django_idempotency import errors
from django_idempotency.contrib.batches.messages import (
    LIMIT,
    Acknowledge,
    DeadLetter,
    Disposition,
    Redeliver,
    disposition,
)
from django_idempotency.errors import IdempotencyError
from tests.docs.pages import checked, code


class CardDeclined(Exception):
    """A refusal that is remembered."""


class NetworkDown(Exception):
    """A failure that may pass."""


@pytest.mark.parametrize(
    ("error", "becomes"),
    [
        (None, Acknowledge()),  # it returned: the first time, or as a duplicate
        (errors.ResponseNotStored(), Acknowledge()),  # done; the result is not needed
        # When the record says.
        (
            errors.InProgress(headers={"Retry-After": "7"}),
            Redeliver(after=7),
        ),
        (errors.InProgress(), Redeliver(after=1)),
        (errors.OwnershipLost(), Redeliver(after=1)),
        (errors.LeaseLost(), Redeliver(after=1)),  # the new owner's result is the one that counts
        (errors.StoreUnavailable(), Redeliver(after=1)),
        (errors.OutcomeUnknown(), Redeliver(after=1)),
        (errors.DeadlinePassed(), Redeliver(after=1)),  # to another host
        (errors.RequestMismatch(), DeadLetter()),
        (errors.KeyMissing(), DeadLetter()),
        (errors.KeyMalformed(), DeadLetter()),
        (errors.UnhashablePayload(), DeadLetter()),
        (errors.NotSelectable(), DeadLetter()),
        (errors.HeldForPerson(), DeadLetter()),
        # A mistake in the program: it meets itself each time.
        (
            errors.CalledItself(),
            DeadLetter(),
        ),
        (errors.KeyExpired(), DeadLetter()),  # nobody knows if it was carried out
        (errors.OperationCancelled(), DeadLetter()),  # no later delivery is carried out
        (errors.OperationUndone(), DeadLetter()),
        (errors.StoreRefused(), Redeliver(after=1)),  # such as a migration that is missing
        (NetworkDown(), Redeliver(after=1, failures=1)),
        # The function ends it each time.
        (
            errors.TransactionLost(),
            Redeliver(after=1, failures=1),
        ),
        (errors.LeaseInTransaction(), Redeliver(after=1, failures=1)),  # a deployment may fix it
        # A version that can read it may be on its way.
        (
            errors.RecordUnreadable(),
            Redeliver(after=1, failures=1),
        ),
        (errors.SecretUnknown(), Redeliver(after=1, failures=1)),
    ],
    ids=repr,
)
def test_the_table(error: Exception | None, becomes: Disposition) -> None:
    """The table has each way in which a call ends."""
    assert disposition(error) == becomes


def test_an_error_of_ours_is_not_a_result() -> None:
    """It must be named: if `Exception` made it one, a message whose work still runs elsewhere would
    be acknowledged.
    """
    assert disposition(errors.InProgress(), answers=Exception) == Redeliver(after=1)
    assert disposition(errors.UnhashablePayload(), answers=TypeError) == DeadLetter()
    assert (
        disposition(errors.HeldForPerson(), answers=(KeyError, errors.HeldForPerson))
        == Acknowledge()
    )
    assert disposition(NetworkDown(), answers=Exception) == Acknowledge()


def test_failures_wait_longer_and_longer() -> None:
    """1, 2, 4 and 8 seconds; then it is a dead letter."""
    failures, pauses = 0, []
    while isinstance(found := disposition(NetworkDown(), failures=failures), Redeliver):
        failures = found.failures
        pauses.append(found.after)
    assert pauses == [1, 2, 4, 8]
    assert failures == LIMIT - 1
    assert found == DeadLetter()


def test_no_pause_is_longer_than_a_minute() -> None:
    """The limit holds however often it may fail."""
    assert disposition(NetworkDown(), failures=50, limit=100) == Redeliver(after=60, failures=51)


def test_a_limit_of_one() -> None:
    """The first failure is the last."""
    assert disposition(NetworkDown(), limit=1) == DeadLetter()


@pytest.mark.parametrize("error", [errors.InProgress(), errors.StoreUnavailable()], ids=repr)
def test_waiting_is_not_a_failure(error: Exception) -> None:
    """Waiting for its turn never makes a message a dead letter."""
    assert disposition(error, failures=LIMIT - 1) == Redeliver(after=1, failures=LIMIT - 1)


@pytest.mark.parametrize("answers", [CardDeclined, (CardDeclined,)], ids=["class", "tuple"])
def test_a_kept_exception_is_an_answer(
    answers: type[Exception] | tuple[type[Exception], ...],
) -> None:
    """Another delivery would get the same one."""
    assert disposition(CardDeclined(), answers=answers) == Acknowledge()
    assert isinstance(disposition(NetworkDown(), answers=answers), Redeliver)


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    """Yield each class of the package, and the module that has it."""
    for module in sorted(Path(errors.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.ClassDef):
                yield str(module), node


def test_each_error_says_itself_what_becomes_of_its_message() -> None:
    """None inherits it: `TransactionLost` had from `StoreUnavailable` that it passes, and came
    again without end.
    """
    found = list(classes())
    ours, silent = {"IdempotencyError"}, []
    for _ in range(5):  # the bases of bases, wherever they are
        for module, node in found:
            bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
            if node.name not in ours and bases & ours:
                ours.add(node.name)
                said = "\n".join(
                    ast.unparse(line) for line in node.body if isinstance(line, ast.Assign)
                )
                if not re.search(r"\bdelivery\b.*\"?'?(done|later|never|failed)", said):
                    silent.append(f"{node.name} in {module}")
    assert silent == []
    assert len(ours) > 50
    for error in vars(errors).values():
        if isinstance(error, type) and issubclass(error, IdempotencyError):
            assert vars(error)["delivery"] in ("done", "later", "never", "failed")


def test_a_class_of_a_project_inherits_nothing() -> None:
    """It does not say that waiting helps, so its failures are counted."""

    class Lasting(errors.StoreUnavailable):
        """Something that does not pass."""

    assert disposition(Lasting()) == Redeliver(after=1, failures=1)
    assert disposition(Lasting(), failures=LIMIT - 1) == DeadLetter()


def test_the_page_has_every_error() -> None:
    """Each of our errors is there with its outcome; errors that share a row share a base."""
    shown = {
        code(error): code(becomes)
        for error, becomes, _ in checked("how-to/tasks-and-messages.md", "dispositions")
    }
    for error in vars(errors).values():
        if isinstance(error, type) and issubclass(error, IdempotencyError):
            row = next((base.__name__ for base in error.__mro__ if base.__name__ in shown), "")
            assert type(disposition(error())).__name__ == shown[row], error.__name__
