"""How a record's facts are shown, in the list and on its page."""

from __future__ import annotations

from datetime import datetime
from datetime import timezone as datetime_timezone
from typing import Any

from django.contrib import admin
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.models import Case, F, TextField, Value, When
from django.db.models.functions import Coalesce
from django.utils import formats, timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from ..core import rules
from ..core.failures import Failure, failure_in
from ..core.records import CALL_METHOD, CANCELLATIONS, HELD, OutcomeKind, Record, Status
from ..core.states import RecordState, state_of
from ..errors import RecordUnreadable
from ..inspection import redaction
from ..inspection.status import display_status, next_answer
from ..inspection.terminal import span
from ..models import IdempotencyRecord
from ..stores.orm.statements import outcome_of, record_of
from .listing import ModelAdmin

#: The statuses of what says that a record is held or cancelled.
MARKED = tuple({each.status for each in (HELD, *CANCELLATIONS)})
#: How a function call ended, by the status that encodes it.
_ENDED = {kind.value: kind.name.lower() for kind in OutcomeKind}


def moment(value: datetime, *, brief: bool = False) -> SafeString:
    """Show a point in time in the current time zone; `brief` leaves today's date out."""
    local = timezone.localtime(value)
    today = timezone.localtime(datetime.now(datetime_timezone.utc)).date()
    wanted = (
        "H:i:s"
        if brief and local.date() == today
        else "M j, H:i:s"
        if local.year == today.year
        else "M j Y, H:i:s"
    )
    shown_as = formats.date_format(local, wanted)
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        local.isoformat(),
        local.isoformat(" "),
        shown_as,
    )


def two_lines(first: Any, second: Any) -> SafeString:
    return format_html('{}<br><span class="quiet">{}</span>', first, second)


def code(value: Any) -> SafeString:
    return format_html("<code>{}</code>", value)


def instant(field: str, description: Any) -> Any:
    """Make a column that shows a point in time."""

    @admin.display(description=description, empty_value="-")
    def column(_: Any, row: IdempotencyRecord) -> SafeString | None:
        value = getattr(row, field)
        return None if value is None else moment(value)

    return column


def record_of_row(row: IdempotencyRecord) -> Record:
    """Return a row as the record that the store would read at the database's time; without a
    deferred response.

    `row` comes from the page's queryset, which annotates `read_at`. Raises `RecordUnreadable` for a
    row of a later version or of other software.
    """
    deferred = row.get_deferred_fields()
    names = [field.attname for field in row._meta.concrete_fields if field.attname not in deferred]
    values = {name: getattr(row, name) for name in (*names, "read_at")}
    # Documented, and the only name it has.
    return record_of({**values, "location": None}, connections[row._state.db or DEFAULT_DB_ALIAS])  # noqa: SLF001


def noting() -> Case:
    """Return what a row notes in place of a response's headers; "" for most others, whose headers
    may be long.

    A released row notes its failed attempt, a completed one that it is held or cancelled.
    """
    marked = {"status": Status.COMPLETED.value, "response_status__in": MARKED}
    return Case(
        When(status=Status.FREE.value, then=F("response_headers")),
        When(**marked, then=F("response_headers")),
        default=Value(""),
        output_field=TextField(),
    )


def failure_of(row: IdempotencyRecord) -> Failure | None:
    """Return how the last attempt of a row failed.

    The list reads that of released rows only: see `noting()`.
    """
    noted = getattr(row, "noted", "")
    return failure_in(outcome_of(row.response_status, noted, None)) if noted else None


class Columns(ModelAdmin):
    """Adds the displayed columns that are not plain fields."""

    def read(self, row: IdempotencyRecord) -> Record | None:
        """Return the record of a row; `None` if it is unreadable.

        On its page it is what the store has read. In the list the row itself is read: the store
        would be asked for each.
        """
        if hasattr(row, "record"):
            return row.record  # type: ignore[no-any-return]
        try:
            record = record_of_row(row)
        except RecordUnreadable:
            return None
        noted = getattr(row, "noted", "")
        return (
            record._replace(outcome=outcome_of(row.response_status, noted, None))
            if noted
            else record
        )

    # ----------------------------------------------------------------- the list, two facts per cell

    @admin.display(description=_("key and scope"))
    def identity(self, row: IdempotencyRecord) -> SafeString:
        key = row.key if len(row.key) <= 20 else f"{row.key[:8]}…{row.key[-4:]}"
        person = getattr(row, "person", "")
        return two_lines(key, format_html("{} ({})", row.scope, person) if person else row.scope)

    @admin.display(description=_("status"))
    def state_and_guarantee(self, row: IdempotencyRecord) -> SafeString:
        failure = failure_of(row)
        return two_lines(
            self.state(row), self.since(row) or (row.guarantee if failure is None else failure.name)
        )

    def since(self, row: IdempotencyRecord) -> str:
        """Return how long a record has been abandoned; "" for any other."""
        record = self.read(row)
        if record is None or state_of(record) is not RecordState.ABANDONED:
            return ""
        return _("for %s") % span(record.read_at - record.lease_until)

    @admin.display(description=_("last change"), ordering=Coalesce("completed_at", "lease_until"))
    def life(self, row: IdempotencyRecord) -> SafeString:
        """Show when a record was completed, or how long ago first claimed.

        It is sorted by that, or by the end of the newest lease: no column has each change.
        """
        if row.status != Status.COMPLETED or row.completed_at is None:
            return moment(row.created_at, brief=True)
        seconds = max((row.completed_at - row.created_at).total_seconds(), 0)
        took = f"{seconds * 1000:,.0f} ms" if seconds < 1 else f"{seconds:,.1f} s"
        return two_lines(moment(row.completed_at, brief=True), _("done in %s") % took)

    @admin.display(description=_("response"))
    def answer(self, row: IdempotencyRecord) -> SafeString:
        shown = SafeString("-")
        ended = row.response_status
        if ended is not None and (row.status != Status.FREE or row.method != CALL_METHOD):
            said = _ENDED.get(ended, ended) if row.method == CALL_METHOD else ended
            shown = format_html(
                '<span class="idempotency-answer of-{}">{}</span>', ended // 100, said
            )
        return (
            two_lines(shown, format_html("{} {}", _("attempt"), row.attempt))
            if row.attempt > 1
            else shown
        )

    # ------------------------------------------------------------------------------- both, the page

    @admin.display(description=_("scope"))
    def principal(self, row: IdempotencyRecord) -> SafeString:
        return format_html("{} {}", code(row.scope), getattr(row, "person", ""))

    @admin.display(description=_("key"))
    def whole_key(self, row: IdempotencyRecord) -> SafeString:
        return code(row.key)

    @admin.display(description=_("request"))
    def request(self, row: IdempotencyRecord) -> SafeString:
        return code(f"{row.method} {redaction.text(row.path)}")

    @admin.display(description=_("original request"), empty_value="-")
    def original_request(self, row: IdempotencyRecord) -> SafeString | None:
        """Show the id by which a replay names the request that did the work.

        A function's call has none.
        """
        record = self.read(row)
        if record is None or record.method == CALL_METHOD:
            return None
        return code(rules.original_request(record))

    @admin.display(description=_("request digest"))
    def fingerprint(self, row: IdempotencyRecord) -> Any:
        digest = bytes(row.digest).hex()
        return code(digest) if digest else _("None: the next body may differ.")

    @admin.display(description=_("status"))
    def state(self, row: IdempotencyRecord) -> SafeString:
        record = self.read(row)
        if record is None:
            label = '<span class="idempotency-label" title="{}">{}</span>'
            return format_html(label, RecordUnreadable(), _("unreadable"))
        status = display_status(record)
        return format_html(
            '<span class="idempotency-label {}" title="{}">{}</span>',
            status.value,
            status.meaning,
            status.label,
        )

    @admin.display(description=_("A request with this key"))
    def next_request(self, row: IdempotencyRecord) -> str:
        record = self.read(row)
        return str(RecordUnreadable() if record is None else next_answer(record))

    leased = instant("lease_until", _("leased until"))
    created = instant("created_at", _("created"))
    done = instant("completed_at", _("completed"))
    ends = instant("expires_at", _("expires"))
    kept = instant("purge_at", _("kept until"))

    @admin.display(description=_("failed"), empty_value="-")
    def failed(self, row: IdempotencyRecord) -> SafeString | None:
        """Show how, when and in which request the last attempt failed."""
        failure = failure_of(row)
        if failure is None:
            return None
        ending = failure.error or _("response %d") % failure.status
        when = "" if failure.at is None else moment(failure.at)
        known = row.request_id and row.method != CALL_METHOD
        where = format_html(str(_("in the request {}")), code(row.request_id)) if known else ""
        return format_html("{} {} {}", code(ending), when, where)

    @admin.display(description=_("came again"))
    def repeated(self, row: IdempotencyRecord) -> SafeString | str:
        """Show what was counted of later requests with this key."""
        counted = getattr(row, "repeats", None)
        if counted is None:
            return "-"
        replays = ngettext("%d replay", "%d replays", counted.replays) % counted.replays
        others = (
            ngettext(
                "%d refused as another request", "%d refused as other requests", counted.mismatches
            )
            % counted.mismatches
        )
        return format_html(
            "{}, {}; {} {}", replays, others, _("last seen"), moment(counted.last_seen)
        )
