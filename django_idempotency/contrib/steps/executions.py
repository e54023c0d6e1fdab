"""Durable executions on the command line: `idempotency_record --execution`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.core.management.base import CommandParser

from ...core.interventions import Intervention
from ...inspection.interventions import Verb
from ...inspection.terminal import plain
from ...management.arguments import Sought
from ...management.base import StoreCommand
from ...management.commands import idempotency_record
from .durable import Execution


@dataclass(frozen=True, kw_only=True)
class VerbOfExecution(Verb):
    """A verb for a record that an execution has suspended: it applies in spite of the lease."""

    execution: Execution

    def act(self, store: Any, record_id: UUID, *, audit: Any) -> Intervention:
        freed = self.execution.release(
            store, record_id, audit=audit, forgetting=self.name != "release"
        )
        if freed and self.name != "erase":  # what is free can be erased, by the store
            return Intervention.DONE
        return super().act(store, record_id, audit=audit)


class OfExecution(idempotency_record.Command):
    """Show or change a record that a durable execution has suspended."""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--execution",
            metavar="NAME",
            help="Show whether this durable execution has suspended the record; an intervention "
            "then applies even so.",
        )

    handle = StoreCommand.handle

    def show(self, found: Sought, options: dict[str, Any]) -> None:
        super().show(found, options)
        name = options["execution"]
        sleeps = "is" if Execution(name).has_suspended(found.get()) else "is not"
        self.stdout.write(f"\nIt {sleeps} suspended by the durable execution {plain(name)}.")

    def changed_by_hand(self, found: Sought, verb: Verb, options: dict[str, Any]) -> Iterator[str]:
        waking = VerbOfExecution(**vars(verb), execution=Execution(options["execution"]))
        return super().changed_by_hand(found, waking, options)
