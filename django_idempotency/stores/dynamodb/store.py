"""Records in DynamoDB, through boto3."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.core.checks import CheckMessage

from ...core import rules
from ...core.conclusions import claimed
from ...core.records import Guarantee, Record, Settlement, Status, Ticket
from ...errors import ConfigurationError, LostRace, RecordUnreadable, StoreUnavailable
from ..base import BaseStore, Purged, Scanned, utcnow, without_body
from ..check_messages import Finding
from ..key_value import packing
from ..key_value.options import refuse_timeout
from .client import DynamoDBClient
from .items import FIELDS, Schema, deleted_at
from .table import create, missing

if TYPE_CHECKING:
    from .items import Item

#: The fields that a record takes from its ticket once per life.
_LIFE = ("scope", "key", "created_at", "guarantee", "secret_id", "method", "path")
#: What a takeover compares. The deadline is included: an owner that renews at the last moment keeps
#: the record.
_SEEN = ("owner", "status", "attempt", "lease_until")


class E052(Finding):
    """The table "%(table)s" of IDEMPOTENCY["STORES"]["%(alias)s"] is missing in DynamoDB.

    Type python manage.py idempotency_stores create --store=%(alias)s
    """


class E053(Finding):
    """IDEMPOTENCY["STORES"]["%(alias)s"] does not match its table in DynamoDB: %(error)s

    Type in "OPTIONS" the names that the table has ("key_attr", "sort_key_attr", "attributes"), or
    another "table".
    """


class W063(Finding):
    """TTL is off for the DynamoDB table "%(table)s" of IDEMPOTENCY["STORES"]["%(alias)s"]: nothing
    is deleted, and it grows forever.

    Type python manage.py idempotency_stores create --store=%(alias)s
    """


class DynamoDBStore(BaseStore):
    """Records in the DynamoDB table `table`, which `manage.py idempotency_stores create` creates.

    DynamoDB has no clock to query, so deadlines are set and judged by the clocks of the hosts, in
    UTC. Two hosts whose clocks differ by more than the rest of a lease may run one key at once: for
    the host that is ahead, the lease has ended. Its owner is still working, and only that owner's
    settle is refused. Keep NTP on, and LEASE far above the remaining skew. The store is outside the
    work's transaction, so it has no `atomic`; pass on the keys of `derive()`. In a global table the
    last writer wins between regions: write in one region only.

    A claim is one conditional put, which returns an existing item. So a first call is two requests,
    a replay is one. A replay costs a write unit per KB of the stored item, since a refused put is
    charged as a put. A response that does not fit into an item (400 KB, compressed) is stored
    without its body. DynamoDB deletes expired items, perhaps days later; until then the rules treat
    them as expired.

    `key_attr` names the partition key; with `sort_key_attr` that holds the id, and the partition
    key is `static_pk_value`. `attributes` renames the others; a name that this takes from another
    of ours, that one yields. `timeout` (seconds) limits each connection and each response, with two
    tries. `config` (botocore's) overrides ours where set, `session` makes the client, and a
    `client` is used as it is. `clock` returns an aware datetime.
    """

    expires_natively = True
    creates_table = True

    def __init__(
        self,
        *,
        table: str = "idempotency",
        key_attr: str = "id",
        sort_key_attr: str | None = None,
        static_pk_value: str | None = None,
        attributes: Mapping[str, str] | None = None,
        timeout: float = 0.5,
        region_name: str | None = None,
        endpoint_url: str | None = None,
        config: Any = None,
        session: Any = None,
        client: Any = None,
        clock: Callable[[], datetime] = utcnow,
    ) -> None:
        refuse_timeout(timeout, usual=0.5)
        self.schema = Schema(
            table=table,
            key_attr=key_attr,
            sort_key_attr=sort_key_attr,
            static_pk_value=static_pk_value,
            attributes=attributes or {},
        )
        where = {"region_name": region_name, "endpoint_url": endpoint_url}
        self.client = DynamoDBClient(
            timeout=timeout, where=where, config=config, session=session, client=client
        )
        self._clock = clock

    def check(
        self, alias: str, *, deploy: bool = False, copies_only: bool = False
    ) -> Iterator[CheckMessage]:
        if not deploy:
            return
        try:
            match missing(self.client, self.schema):
                case "table":
                    yield E052(alias=alias, table=self.schema.table)
                case "ttl":
                    yield W063(alias=alias, table=self.schema.table)
        except ConfigurationError as error:
            yield E053(alias=alias, error=error)

    def create_table(self, *, dry_run: bool = False) -> Iterator[str]:
        """Create the table of `schema`.

        Raises `ConfigurationError` for a table of another kind, or `StoreUnavailable`.
        """
        return create(self.client, self.schema, dry_run=dry_run)

    @property
    def location(self) -> Hashable:
        return (*self.client.location, *self.schema.location)

    # ---------------------------------------------------------------------------------------- claim

    def claim(self, ticket: Ticket) -> Record:
        known: Record | None = None
        for _ in range(4):
            # Before the request: its result is judged as of a little earlier, never later.
            now = self._clock()
            tried = claimed(ticket, known, now)
            if known is None:
                done, item = self.client.write("put_item", **self.schema.insert(tried))
            else:
                # Takeover, compared with what was read:   owner |--- lease ---|  (silent)
                #                                          we                        |--- lease ---|
                done, item = self.client.write("update_item", **self._takeover(tried, known))
            if done:
                return tried
            known = None if item is None else self._record(item, ticket.id, now)
            if known is None:
                continue  # deleted meanwhile
            if rules.owned(known, ticket):
                return known._replace(taken=tried.taken)  # ours since a try whose response was lost
            if ticket.guarantee is Guarantee.ATOMIC or not rules.takeable(known, ticket):
                return known
        raise LostRace

    def _takeover(self, taken: Record, known: Record) -> dict[str, Any]:
        values: dict[str, Any] = {name: getattr(taken, name) for name in FIELDS}
        values["ttl"] = deleted_at(rules.keep_until(taken))
        change = self.schema.change(
            known.id, values, seen={name: getattr(known, name) for name in _SEEN}
        )
        return {**change, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}

    # -------------------------------------------------------------------------------- settle, renew

    def settle(self, ticket: Ticket, settlement: Settlement) -> bool:
        now = self._clock()
        completes = settlement.status is Status.COMPLETED and settlement.outcome is not None
        values: dict[str, Any] = {
            "status": settlement.status,
            "owner": ticket.owner,
            "request_id": ticket.request_id,
            "attempt": settlement.attempt,
            "digest": settlement.digest,
            "outcome": self.schema.fitting(ticket, settlement.outcome),
            "completed_at": now if completes else None,
        }
        if settlement.lease_in is not None:
            values["lease_until"] = now + timedelta(seconds=settlement.lease_in)
        if settlement.expires_in is not None:
            values["expires_at"] = now + timedelta(seconds=settlement.expires_in)
        if settlement.new_life:
            values |= {name: getattr(rules.born(ticket, now), name) for name in _LIFE}
            values["operation"] = settlement.operation
        seen = {"owner": settlement.fence}
        once = () if settlement.new_life else ("completed_at",)
        change = partial(self.schema.change, ticket.id, seen=seen, once=once)
        if settlement.expires_in is None:
            changes = [change(values)]
        else:  # an update cannot take the later of two times, so there are two: the likelier first
            ttl = deleted_at(values["expires_at"], values.get("lease_until", now))
            longer = {**values, "ttl": ttl}
            if settlement.expires_in < ticket.ttl:
                changes = [change(values, deleted=(">=", ttl)), change(longer)]
            else:
                changes = [change(longer, deleted=("<=", ttl)), change(values)]
        return any(self.client.write("update_item", **each)[0] for each in changes)

    def renew(self, tickets: Sequence[Ticket]) -> set[UUID]:
        """See BaseStore.renew().

        If the server does not respond, raises; the error's `renewed` has the tokens before that.
        """
        renewed: set[UUID] = set()
        try:
            for ticket in tickets:
                changes = (
                    self._renewal(ticket, outliving=outliving) for outliving in (False, True)
                )
                if any(self.client.write("update_item", **change)[0] for change in changes):
                    renewed.add(ticket.owner)
        except StoreUnavailable as error:
            error.renewed = renewed
            raise
        return renewed

    def _renewal(self, ticket: Ticket, *, outliving: bool) -> dict[str, Any]:
        """Return the update of an item that is kept longer than its new lease; if `outliving`, of
        one that is not.
        """
        until = self._clock() + timedelta(seconds=ticket.lease)
        values: dict[str, Any] = {"lease_until": until}
        # Deleting an item late does no harm, and this one need not be extended again soon.
        if outliving:
            values["ttl"] = deleted_at(until + timedelta(seconds=ticket.ttl))
        deleted = "<" if outliving else ">=", deleted_at(until)
        seen = {"owner": ticket.owner, "status": Status.RUNNING}
        return self.schema.change(ticket.id, values, seen=seen, deleted=deleted)

    # ----------------------------------------------------------------------------------- get, purge

    def get(self, record_id: UUID) -> Record | None:
        now = self._clock()
        found = self.client.ask(
            "get_item",
            TableName=self.schema.table,
            Key=self.schema.key(record_id),
            ConsistentRead=True,
        )
        return self._record(found["Item"], record_id, now) if "Item" in found else None

    def scan(self, *, size: int = 1000, bodies: bool = False) -> Iterator[Scanned]:
        """See BaseStore.scan().

        A Scan of the table, or a Query of our partition: each batch is up to 1 MB of items.
        """
        start: dict[str, Any] = {}
        while True:
            now = self._clock()
            operation, arguments = self.schema.scan(size)
            found = self.client.ask(operation, **arguments, **start)
            records = list[Record]()
            unreadable = 0
            for item in found.get("Items", ()):
                try:
                    record = self.schema.record(item, self.schema.id_of(item), now)
                except packing.Malformed:
                    unreadable += 1
                else:
                    records.append(record if bodies else without_body(record))
            yield Scanned(records=records, unreadable=unreadable)
            if "LastEvaluatedKey" not in found:
                break
            start = {"ExclusiveStartKey": found["LastEvaluatedKey"]}

    def size(self) -> int | None:
        """Return what DynamoDB last counted, every six hours or so."""
        described = self.client.ask("describe_table", TableName=self.schema.table)
        size: int | None = described["Table"].get("TableSizeBytes")
        return size

    def purge(self, *, limit: int, since: datetime | None = None) -> Purged:
        """Do nothing: DynamoDB deletes what has expired."""
        return Purged(count=0, resume=None)

    def _record(self, item: Item, record_id: UUID, read_at: datetime) -> Record:
        try:
            return self.schema.record(item, record_id, read_at)
        except packing.Malformed as error:
            raise RecordUnreadable from error
