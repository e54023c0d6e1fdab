"""Searches a model of the project for suspects: rows with equal business facts, close together,
made under different keys.

One of them may be the same charge twice: a client that made a new key for its retry, or a person
who pressed twice. Or both are meant. Only a person, or the provider, knows.

It reads, in one statement, and never writes. The database decides what is equal, by its collation,
and sorts; only rows that are near another one leave it. NULL equals nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage
from django.core.exceptions import FieldDoesNotExist, FieldError, ValidationError
from django.db import connections, models, router
from django.db.models import Case, F, Q, QuerySet, Value, When, Window
from django.db.models.constants import LOOKUP_SEP
from django.db.models.functions import Lag, Lead

from ... import signals
from ...api import Metric, setting
from ...checks.settings import after_settings, senseless
from ...stores.check_messages import type_named

FOUND = Metric("duplicates.found", "Suspects that a search found.", ("model",), unit="{suspect}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """One row of the project's table."""

    #: The values of the primary key's fields: one, unless it is composite.
    pk: tuple[Any, ...]
    at: datetime
    #: The idempotency key that it was made under; `None`: it has none, or the model does not store
    #: keys.
    key: Any
    facts: tuple[Any, ...]
    #: Is the row before it, among those with equal facts, near enough and of another key?
    follows: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """Rows with equal facts, oldest first. Each is near the one before it, and has another key."""

    #: The label of the model, such as "payments.Charge".
    model: str
    #: Their values, by name. Where the database ignores case, those of the first row.
    facts: dict[str, Any]
    #: At least two.
    rows: tuple[Sighting, ...]

    @property
    def first_at(self) -> datetime:
        return self.rows[0].at

    @property
    def last_at(self) -> datetime:
        return self.rows[-1].at

    @property
    def span(self) -> timedelta:
        return self.last_at - self.first_at


def suspects(
    rows: Iterable[Sighting], *, model: str, names: tuple[str, ...], since: datetime
) -> Iterator[Suspect]:
    """Yield the groups of a model's rows, which are ordered by facts, time and primary key.

    A group whose last row is before `since` belongs to an earlier search. A row alone is not a
    suspect: the row that it was near to has not been read.
    """
    for group in _chains(rows):
        if len(group) > 1 and group[-1].at >= since:
            yield Suspect(
                model=model, facts=dict(zip(names, group[0].facts, strict=True)), rows=tuple(group)
            )


def _chains(rows: Iterable[Sighting]) -> Iterator[list[Sighting]]:
    """Yield the rows in chains: a row that does not follow begins another."""
    chain: list[Sighting] = []
    for row in rows:
        if chain and not row.follows:
            yield chain
            chain = []
        chain.append(row)
    if chain:
        yield chain


def report(model: Any, suspect: Suspect) -> None:
    """Send `duplicate_found`, and count it. Nothing is logged: facts may be personal.

    What a receiver raises is logged by Django and changes nothing.
    """
    FOUND.record(model=model._meta.label)
    signals.duplicate_found.send_robust(sender=model, suspect=suspect)


# ------------------------------------------------------------------------------------------- search

#: The field that a model keeps its idempotency key in, unless the command says otherwise.
KEY = "idempotency_key"
#: Our annotation: is the row near the one before it?
_FOLLOWS = "idempotency_follows"


class Unsearchable(Exception):
    """The model cannot be searched like this. The message says what to type instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What to look for, in a model. Raises `Unsearchable` when it is made, if the model cannot be
    searched like this.
    """

    model: type[models.Model]
    #: Fields of the model, or paths such as `card__fingerprint`.
    same: tuple[str, ...]
    #: A `DateTimeField` of the model.
    timestamp: str
    #: The field, or path, of the idempotency key; `None`: the model does not store it.
    key: str | None
    #: Two rows are near if they are at most this far apart.
    within: timedelta
    #: Rows from `since`, and those that they are near to, until before `until`.
    since: datetime
    until: datetime
    #: Lookups that each row must match, with their values as text.
    where: tuple[tuple[str, str], ...]
    #: An alias of DATABASES.
    using: str

    def __post_init__(self) -> None:
        spelled: dict[str, str] = {}
        for path in self._names():
            found = _column(self.model, path)
            if found.rest:
                raise Unsearchable(
                    f"{path!r} goes past a column: {LOOKUP_SEP.join(found.rest)!r} is no field."
                )
            # Django mixes up the columns of a filtered window if one of them is selected twice.
            if spelled.setdefault(found.path, path) != path:
                raise Unsearchable(
                    f"{path!r} and {spelled[found.path]!r} are one column. Leave one out."
                )
        for path, _ in self.where:
            _column(self.model, path)
        found = _column(self.model, self.timestamp)
        if LOOKUP_SEP in self.timestamp or not isinstance(found.field, models.DateTimeField):
            raise Unsearchable(
                f"{self.timestamp!r} is not a DateTimeField of {self.model._meta.label}."
            )

    def rows(self, limit: int) -> list[Sighting]:
        """Return at most `limit` rows that are near another one: by facts, then time.

        Raises Django's `DatabaseError`.
        """
        found = self._near().values(*self._names(), _FOLLOWS)[:limit]
        return [self._sighting(row) for row in found]

    def has_index(self) -> bool:
        """Has the table an index that begins with the timestamp?"""
        field = _column(self.model, self.timestamp).field
        connection = connections[self.using]
        with connection.cursor() as cursor:
            constraints = connection.introspection.get_constraints(
                cursor, field.model._meta.db_table
            )
        return any(
            (each["index"] or each["unique"]) and list(each["columns"][:1]) == [field.column]
            for each in constraints.values()
        )

    def _names(self) -> tuple[str, ...]:
        keys = () if self.key is None else (self.key,)
        return tuple(dict.fromkeys((*self.same, *self._pk(), self.timestamp, *keys)))

    def _pk(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.model._meta.pk_fields)

    def _near(self) -> QuerySet[Any]:
        """Select the rows that are near the one before or after them, and of another key."""
        try:
            first = self.since - self.within
        except OverflowError as error:
            raise Unsearchable(f"--since is too early: {self.since}.") from error
        chosen = {
            f"{self.timestamp}__gte": first,
            f"{self.timestamp}__lt": self.until,
            **{f"{path}__isnull": False for path in self.same},
        }
        try:
            # Documented; it hides no row.
            everything = self.model._base_manager.using(self.using)  # noqa: SLF001
            where = [Q(**{path: _value(path, text)}) for path, text in self.where]
            rows: QuerySet[Any] = everything.filter(*where, **chosen)
        except (FieldError, ValidationError, ValueError, TypeError) as error:
            said = " ".join(error.messages) if isinstance(error, ValidationError) else str(error)
            raise Unsearchable(f"--where cannot be asked: {said}") from error
        span = Value(self.within, output_field=models.DurationField())
        before = self._neighbour(Lag, self.timestamp)
        after = self._neighbour(Lead, self.timestamp)
        rows = rows.annotate(idempotency_before=before, idempotency_after=after)
        same_before = []
        same_after = []
        if self.key is not None:
            rows = rows.annotate(
                idempotency_key_before=self._neighbour(Lag, self.key),
                idempotency_key_after=self._neighbour(Lead, self.key),
            )
            same_before = [When(self._one_key("idempotency_key_before"), then=Value(False))]
            same_after = [When(self._one_key("idempotency_key_after"), then=Value(False))]
        # Case, and not "NOT (a = b)": an unknown comparison is false here.
        near_before = When(idempotency_before__gte=F(self.timestamp) - span, then=Value(True))
        near_after = When(idempotency_after__lte=F(self.timestamp) + span, then=Value(True))
        near: QuerySet[Any] = (
            rows.annotate(
                idempotency_follows=Case(*same_before, near_before, default=Value(False)),
                idempotency_leads=Case(*same_after, near_after, default=Value(False)),
            )
            .filter(Q(idempotency_follows=True) | Q(idempotency_leads=True))
            .order_by(*(F(path) for path in self.same), *self._order())
        )
        return near

    def _neighbour(self, function: Any, path: str) -> Window:
        return Window(
            function(path), partition_by=[F(each) for each in self.same], order_by=self._order()
        )

    def _order(self) -> list[Any]:
        return [F(name).asc() for name in (self.timestamp, *self._pk())]

    def _one_key(self, neighbour: str) -> Q:
        """Have a row and its neighbour one key? An empty one is none."""
        assert self.key is not None
        one = Q(**{neighbour: F(self.key)})
        text = isinstance(_column(self.model, self.key).field, (models.CharField, models.TextField))
        return one & ~Q(**{self.key: ""}) if text else one

    def _sighting(self, row: Mapping[str, Any]) -> Sighting:
        return Sighting(
            pk=tuple(row[name] for name in self._pk()),
            at=row[self.timestamp],
            key=None if self.key is None or row[self.key] == "" else row[self.key],
            facts=tuple(row[path] for path in self.same),
            follows=bool(row[_FOLLOWS]),
        )


def default_timestamp(model: type[models.Model]) -> str:
    """Return the field that says when a row was made. Raises `Unsearchable`."""
    times = [
        field for field in model._meta.concrete_fields if isinstance(field, models.DateTimeField)
    ]
    for field in times:
        if field.auto_now_add:
            return field.name
    latest = model._meta.get_latest_by or ()
    for name in [latest] if isinstance(latest, str) else latest:
        if name.lstrip("-") in {field.name for field in times}:
            return str(name).lstrip("-")
    has = (
        f"It has {', '.join(field.name for field in times)}."
        if times
        else "It has no DateTimeField."
    )
    raise Unsearchable(
        f"Which field says when a row of {model._meta.label} was made? Type --timestamp "
        f"FIELD. {has}"
    )


def default_key(model: type[models.Model]) -> str | None:
    """Return the field `idempotency_key`, if the model has it."""
    return KEY if any(field.name == KEY for field in model._meta.concrete_fields) else None


def _value(path: str, text: str) -> Any:
    """Return the value of a lookup. Its field reads a text; some lookups take no text."""
    if path.endswith(("__in", "__range")):
        return text.split(",")
    if path.endswith("__isnull"):
        if text not in {"true", "false"}:
            raise ValueError(f"{path} is true or false, and not {text!r}.")
        return text == "true"
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    field: models.Field[Any, Any]
    #: One spelling for each column: `card` is also `card_id` and `card__id`.
    path: str
    #: What comes behind it: lookups.
    rest: list[str]


def _column(model: type[models.Model], path: str) -> _Column:
    """Return the column at the end of a path. Raises `Unsearchable`."""
    at: Any = model
    parts = path.split(LOOKUP_SEP)
    walked: list[models.Field[Any, Any]] = []
    while True:
        name = parts.pop(0)
        try:
            field = at._meta.pk if name == "pk" else at._meta.get_field(name)
        except FieldDoesNotExist as error:
            known = ", ".join(each.name for each in at._meta.concrete_fields)
            raise Unsearchable(
                f"{at._meta.label} has no field {name!r}. It has {known}."
            ) from error
        if not isinstance(field, models.Field) or field.many_to_many or field.column is None:
            raise Unsearchable(
                f"{path!r}: {name!r} of {at._meta.label} has many values for a row, or no column."
            )
        if not walked or getattr(walked[-1], "target_field", None) != field:
            walked.append(field)
        if (
            field.remote_field is None
            or not parts
            or not _names_a_field(field.related_model, parts[0])
        ):
            return _Column(
                field=field, path=LOOKUP_SEP.join(each.name for each in walked), rest=parts
            )
        at = field.related_model


def _names_a_field(model: Any, name: str) -> bool:
    try:
        model._meta.get_field(name)
    except FieldDoesNotExist:
        return name == "pk"
    return True


# ----------------------------------------------------------------------------- an entry of SUSPECTS

#: What an entry has to have, and what it may have.
REQUIRED = ("model", "same", "within")
OPTIONAL = ("timestamp", "key", "where", "using")


def search_of(entry: Any, *, since: datetime, until: datetime) -> Search:
    """Return the search of one entry. Raises `Unsearchable`, which says what is wrong with it."""
    try:
        return _search_of(entry, since=since, until=until)
    except (
        TypeError,
        ValueError,
        AttributeError,
        OverflowError,
    ) as error:  # a value of a type that nothing takes
        raise Unsearchable(f"An entry cannot be read: {error}.") from error


def _search_of(entry: Any, *, since: datetime, until: datetime) -> Search:
    if not isinstance(entry, Mapping) or any(name not in entry for name in REQUIRED):
        raise Unsearchable(f"Each entry is a dict with {', '.join(REQUIRED)}.")
    if unknown := sorted(set(entry) - {*REQUIRED, *OPTIONAL}, key=str):
        raise Unsearchable(
            f"{unknown[0]!r} is not known. An entry may also have {', '.join(OPTIONAL)}."
        )
    model = model_of(entry["model"])
    same = entry["same"]
    within = entry["within"]
    where = entry.get("where", {})
    if (
        not isinstance(same, (list, tuple))
        or not same
        or not all(isinstance(name, str) for name in same)
    ):
        raise Unsearchable('"same" is a list of fields, such as ["card", "amount"].')
    if not isinstance(within, (int, float, timedelta)) or isinstance(within, bool):
        raise Unsearchable('"within" is seconds, or a timedelta.')
    within = within if isinstance(within, timedelta) else timedelta(seconds=within)
    if within <= timedelta(0):
        raise Unsearchable('"within" is more than nothing: no two rows are nearer.')
    if not isinstance(where, Mapping):
        raise Unsearchable('"where" is a dict, such as {"status": "paid"}.')
    using = entry.get("using") or router.db_for_read(model)
    if using not in connections.databases:
        raise Unsearchable(f"DATABASES has no {using!r}. It has {', '.join(connections)}.")
    return Search(
        model=model,
        same=tuple(same),
        timestamp=entry.get("timestamp") or default_timestamp(model),
        key=entry.get("key") or default_key(model),
        within=within,
        since=since,
        until=until,
        where=tuple((name, str(value)) for name, value in where.items()),
        using=using,
    )


def model_of(label: Any) -> type[models.Model]:
    """Return a model by its label. Raises `Unsearchable`."""
    try:
        return apps.get_model(label)
    except (LookupError, ValueError, AttributeError, TypeError) as error:
        app = str(label).partition(".")[0]
        known = [each._meta.label for each in apps.get_models() if each._meta.app_label == app]
        said = f"{app} has {', '.join(known)}." if known else "Type it as in payments.Charge."
        raise Unsearchable(f"There is no model {label!r}. {said}") from error


@after_settings
def check_suspects(**_: Any) -> Iterator[CheckMessage]:
    """Check that each entry of SUSPECTS can be searched. It does not connect."""
    entries = setting("SUSPECTS")
    if not isinstance(entries, (list, tuple)):
        yield senseless("SUSPECTS", f"A list of dicts, not {type_named(entries)}")
        return
    now = datetime.now(timezone.utc)
    for entry in entries:
        try:
            search_of(entry, since=now, until=now)
        except Unsearchable as error:
            yield senseless("SUSPECTS", str(error).rstrip("."))
