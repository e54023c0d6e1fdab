"""What the model examines, and the mutations that it must notice."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django_idempotency.core import conclusions, rules
from django_idempotency.core.conclusions import Conclusion, Rollback, SettledState, WorkResult
from django_idempotency.core.records import Guarantee, Record, Settlement, Ticket
from django_idempotency.core.rules import Execute

from .world import Code, Setting

EXAMINED = {
    **{
        f"{guarantee}, the work {said}": Setting(guarantee=guarantee, there=there)
        for guarantee in Guarantee
        for there, said in (
            ("plain", "acts at the provider each time"),
            ("asks", "acts in its first attempt only"),
            ("key", "passes its derived key"),
        )
    },
    **{
        f'{guarantee}, on_failure="{on_failure}"': Setting(
            guarantee=guarantee, there="asks", on_failure=on_failure
        )
        for guarantee in Guarantee
        for on_failure in ("hold", "forget")
    },
}


def remembers_what_is_rolled_back(
    ended: WorkResult, rollback: Rollback, on_failure: str = "free", *, succeeded: bool = True
) -> Conclusion:
    if ended is WorkResult.KEPT and rollback is Rollback.ERROR:
        return Conclusion(state=SettledState.COMPLETED, commit=False)
    return conclusions.conclude(ended, rollback, on_failure, succeeded=succeeded)


def counts_no_attempt(
    record: Record, ticket: Ticket, run: Execute, transaction_id: str | None
) -> Settlement:
    return conclusions.takeover(record, ticket, run, transaction_id)._replace(
        attempt=record.attempt
    )


def runs_again(record: Record, ticket: Ticket) -> Any:
    verdict = rules.read(record, ticket)
    return rules.succession(record) if isinstance(verdict, rules.Replay) else verdict


def another_key(record: Record, run: Execute) -> UUID:
    return UUID(int=run.attempt)


#: What is wrong → the setting in which that is noticed.
MUTATIONS = {
    "a claim is not on disk before the work": Setting(
        guarantee=Guarantee.ATOMIC, there="asks", code=Code(durable_claims=False)
    ),
    "a settle has no fence": Setting(
        guarantee=Guarantee.ATOMIC, there="asks", code=Code(fenced=False)
    ),
    "a success that an error rolls back is remembered": Setting(
        guarantee=Guarantee.ATOMIC, there="asks", code=Code(conclude=remembers_what_is_rolled_back)
    ),
    "the record is settled in a transaction of its own": Setting(
        guarantee=Guarantee.ATOMIC, there="asks", code=Code(one_commit=False)
    ),
    "a takeover counts no attempt": Setting(
        guarantee=Guarantee.ATOMIC, there="asks", code=Code(takeover=counts_no_attempt)
    ),
    "a remembered response is run again": Setting(
        guarantee=Guarantee.ATOMIC, there="key", code=Code(read=runs_again)
    ),
    "each attempt derives another key": Setting(
        guarantee=Guarantee.LEASE, there="key", code=Code(operation_of=another_key)
    ),
}
