"""The texts of the changes that an operator makes by hand: one table for the admin and the command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from ..core.interventions import CHANGES, Intervention

_ALREADY = ngettext_lazy(
    "%d record was already free, expired or erased.", "%d records were already free, expired or erased."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """One change by hand. What the admin shows is translated; what the command prints is not.

    `name` is that of the store's method, of the admin's permission and of the command's option. An app that adds a verb
    to the admin overrides `act()` and `permission`.
    """

    name: str
    # In the admin:
    button: Promise
    title: Promise
    warning: Promise
    counted: Any  # ngettext_lazy
    logged: Promise
    # In the command:
    help: str
    done: str
    already: str
    #: In the admin: how many had that state already.
    already_counted: Any = _ALREADY

    @property
    def permission(self) -> str:
        """What a user of the admin needs, beside the view of records."""
        return f"django_idempotency.{self.name}_record"

    def act(self, store: Any, record_id: UUID, *, audit: Any) -> Intervention:
        """Change a record of a store. `audit(record)` gets it as it was."""
        changed: Intervention = store.change(record_id, CHANGES[self.name], audit=audit)
        return changed


VERBS = {
    "release": Verb(
        name="release",
        button=_("Release…"),
        title=_("Release idempotency keys"),
        warning=_(
            "The stored response is forgotten, and the next request with the key runs the work again. First make sure "
            "that its effect has not happened: a charge would be made again. A different body under the key still gets "
            "422."
        ),
        counted=ngettext_lazy("%d record was released.", "%d records were released."),
        logged=_("Released. It was %(evidence)s. Reason: %(reason)s"),
        help="Forget the response: the next request runs the work again. First make sure that it had no effect.",
        done="Released",
        already="It is free or expired already",
    ),
    "expire": Verb(
        name="expire",
        button=_("Expire…"),
        title=_("Expire idempotency records"),
        warning=_(
            "The record counts as expired from now on. The next request with the key, whatever its body, runs the work "
            "as if it were the first; a purge deletes the record."
        ),
        counted=ngettext_lazy("%d record has expired.", "%d records have expired."),
        logged=_("Expired. It was %(evidence)s, kept until %(expires)s. Reason: %(reason)s"),
        help="End the retention now: the next request is a new one, whatever its body.",
        done="Expired",
        already="It is expired already",
    ),
    "erase": Verb(
        name="erase",
        button=_("Erase…"),
        title=_("Erase idempotency records"),
        warning=_(
            "The stored response and the request's digest are deleted, in the table and in every cached copy. The rest of "
            "the record stays until its retention ends. The next request with the key runs the work as if it were the "
            "first: a charge would be made again."
        ),
        counted=ngettext_lazy("%d record was erased.", "%d records were erased."),
        logged=_("Erased. It was %(evidence)s, kept until %(expires)s. Reason: %(reason)s"),
        help="Delete the response and the request's digest, in the store and in every cache before it.",
        done="Erased",
        already="It is erased already",
    ),
}
