"""What a search of the list looks for: names that people know, and facts that are in the log of a
request.

    alice order-42                     a user's name, or a scope, and a key: the primary key, in any window
    912278e8a313                       the key_hash of a log line: the primary key, in any window (on MariaDB in the window)
    alice · order-42 · req-1           one of them alone: in the window
    status:402 error:CardDeclined      what became of it: in the window, together with any of the above
    location:/charges/7/

Nothing that is masked on a record's page can be found by parts of it: what is not a name is
compared as a whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db.models import Q

from .. import conf
from ..core.at_rest import hashed_scope
from ..core.failures import FAILED, FAILED_AT
from ..core.hashing import record_id, record_of_ref
from ..core.records import Status
from ..inspection.beginnings import beginning, begins
from ..scopes import spellings

#: What a word may begin with that asks for what became of a request.
PREFIXES = ("status:", "error:", "location:")
#: The most words that may belong to a scope or a name.
LONGEST_NAME = 10


class Search(NamedTuple):
    """A search as it was typed: a name, a key or an id (`term`), and facts. `scopes` are those of
    users so named.
    """

    term: str
    facts: tuple[tuple[str, str], ...]
    scopes: dict[str, str]

    @property
    def user(self) -> str:
        """The scope of the user whose name the whole term is; "": it is nobody's."""
        return self.scopes.get(self.term, "")

    def ids(self) -> list[UUID]:
        """Return the ids of the records that it may name: by a scope and a key, an `operation_ref`
        or an id.

        Scope and key may contain spaces, so each space may separate them. The scope may be stored
        as its hash.
        """
        if self.facts:
            return []
        ids = [
            record_id(scope, key)
            for name, key in _halves(self.term)
            for scope in self._scopes(name)
        ]
        if not ids and (referred := record_of_ref(conf.derive_secrets(), self.term)) is not None:
            ids = [referred]
        with suppress(ValueError):
            ids = ids or [UUID(self.term)]
        return ids

    def condition(self) -> Q:
        """Return what finds its records in a window."""
        found = Q()
        for prefix, value in self.facts:
            found &= _fact(prefix, value)
        if self.term:
            found &= Q(key=self.term) | self._owned() | named_request(self.term) | self._begun()
        return found

    def _begun(self) -> Q:
        digits = beginning(self.term)
        return begins(digits) if digits else Q()

    def _scopes(self, name: str) -> Iterator[str]:
        if name in self.scopes:
            yield self.scopes[name]
        yield from spellings(name)

    def _owned(self) -> Q:
        scopes = list(self._scopes(self.term))
        secrets = conf.derive_secrets() if conf.get("HASH_KEYS") else []
        stored = [hashed_scope(secret, each) for secret in secrets for each in scopes]
        owned = Q(scope__in=[*scopes, *stored])
        return (
            owned | Q(scope__startswith="realm", scope__endswith=f"/{self.user}")
            if self.user
            else owned
        )


def parse(typed: str) -> Search:
    """Read what was typed into the search bar, and ask once whether it begins with the name of a
    user.
    """
    facts = list[tuple[str, str]]()
    words = list[str]()
    for word in typed.split(" "):
        prefix = next((each for each in PREFIXES if word.startswith(each) and word != each), "")
        if prefix:
            facts.append((prefix, word.removeprefix(prefix)))
        else:
            words.append(word)
    term = " ".join(words).strip() if facts else typed
    names = {term, *(name for name, _ in _halves(term))}
    return Search(term, tuple(facts), _users(names) if term else {})


def _halves(term: str) -> Iterator[tuple[str, str]]:
    words = term.split(" ")
    for border in range(1, min(len(words), LONGEST_NAME)):
        yield " ".join(words[:border]), " ".join(words[border:])


def _users(names: Iterable[str]) -> dict[str, str]:
    """Return the scopes of the users with these names, by the index of the field that they log in
    with.
    """
    model: Any = get_user_model()
    field = model.USERNAME_FIELD
    # Documented.
    rows = model._default_manager.filter(**{f"{field}__in": list(names)}).values_list(field, "pk")  # noqa: SLF001
    return {
        str(name): f"user:{model._meta.concrete_model._meta.label_lower}:{pk}" for name, pk in rows
    }


def named_request(term: str) -> Q:
    """Find the records whose `Original-Request` is `term`."""
    with suppress(ValueError):
        return Q(request_id=term) | Q(request_id="", owner=UUID(term))
    return Q(request_id=term)


def _fact(prefix: str, value: str) -> Q:
    match prefix:
        case "status:":
            return _status(value)
        # As a whole: a part of it could guess a token in it, which its page masks.
        case "location:":
            return Q(response_headers__contains=json.dumps(["Location", value]))
    name = json.dumps(value)[1:-1]
    ending = f'"], ["{FAILED_AT}"'
    whole = f'["{FAILED}", "{name}{ending}'
    last = f".{name}{ending}"
    return Q(status=Status.FREE.value) & (
        Q(response_headers__contains=whole) | Q(response_headers__contains=last)
    )


def _status(value: str) -> Q:
    """Find a status (402) or a class of them (4xx); nothing, if it is neither."""
    if re.fullmatch("[0-9](?:xx|[0-9]{2})", value, re.IGNORECASE) is None:
        return Q(pk__in=[])
    return Q(
        response_status__range=(int(re.sub("(?i)x", "0", value)), int(re.sub("(?i)x", "9", value)))
    )
