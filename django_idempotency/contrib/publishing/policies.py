"""A policy as its clients need to know it.

The same object is in the schema, on the page and in the command.

The IETF draft (section 2.1) asks a server to publish how long a key lives, and what it looks like.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any

from ... import Policy, conf, errors
from ...api import Dialect, Guarantee, Resolved
from ...core.conclusions import WRITTEN, WorkResult, classify_status, weighs_writes
from ...core.key_formats import ANY, ISSUED, ISSUED_PATTERN, ISSUED_SAMPLE, VERSIONS
from ...core.policy import MIN_SHARED_KEY
from ...errors import Problem
from ..limits import FreshKeys, Suspect


def published(policy: Policy, *, varies: bool = False) -> dict[str, Any]:
    """Return a policy as JSON can express it: `carrier`, `format`, `required`, `lifetime` (ISO
    8601), and so on.

    `varies`: the view chooses another one for some requests, so whether a key is required is left
    out. Raises `ValueError` if the policy contradicts the settings.
    """
    terms = conf.resolve(policy)
    profile = terms.profile
    return {
        "carrier": _carrier(profile),
        **_first_sent(profile),
        "derived": terms.key is not None,
        "format": _format(terms),
        **({} if varies else {"required": terms.required is True}),
        "lifetime": iso_duration(terms.ttl),
        **({"refused_for": iso_duration(terms.seen_for)} if terms.seen_for else {}),
        "scope": _scope(terms),
        "guarantee": terms.guarantee.value,
        "busy": {"then": "reject"}
        if not terms.wait
        else {"then": "wait", "wait": iso_duration(terms.wait)},
        "compared": _compared(terms),
        **_screening(terms),
        "remembered": _remembered(terms),
        "replays": _replays(terms),
        "problems": {problem.code: profile.status_of(problem) for problem in problems_of(policy)},
    }


def _screening(terms: Resolved) -> dict[str, Any]:
    """Return how many new keys a client may make, and what happens to the same request under
    another key.
    """
    found: dict[str, Any] = {}
    for each in terms.extensions:
        if isinstance(each, FreshKeys):
            found["new_keys"] = [
                {"limit": limit, "window": iso_duration(span)} for limit, span in each.rates
            ]
        elif isinstance(each, Suspect) and each.refuse:
            found["duplicates"] = {"within": iso_duration(each.within), "then": "refuse"}
    return found


def _carrier(profile: Dialect) -> dict[str, Any]:
    """Return where the key is, and that it is in quotes there if nothing else is understood."""
    quoted = profile.carrier == "header" and profile.spelling == "quoted"
    return {
        "in": profile.carrier,
        "name": profile.field,
        **({"spelling": "quoted"} if quoted else {}),
    }


def _first_sent(profile: Dialect) -> dict[str, Any]:
    """Return what must come with the key: when the request was first sent, and how long it may be
    repeated.
    """
    if profile.first_sent_field is None:
        return {}
    window = iso_duration(profile.window)
    return {"first_sent": {"in": "header", "name": profile.first_sent_field, "window": window}}


def problems_of(policy: Policy) -> list[type[Problem]]:
    """Return the problems that a request under a policy may get, in the order of their
    declaration.
    """
    terms = conf.resolve(policy)
    return [problem for problem in published_problems() if problem.arises(terms)]


def published_problems() -> list[type[Problem]]:
    """Return the problems that some policy publishes, in the order of their declaration."""
    declared = [
        each
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, Problem)
    ]
    return [problem for problem in declared if "arises" in vars(problem)]


def _format(terms: Resolved) -> dict[str, Any]:
    """Return what a key looks like, in the words of JSON Schema."""
    wanted = terms.key_format
    profile = terms.profile
    if wanted in VERSIONS:
        version = VERSIONS[str(wanted)]
        return {"format": "uuid", **({"x-uuid-version": version} if version else {})}
    if wanted == ISSUED:
        length = len(ISSUED_SAMPLE)
        return {
            "minLength": length,
            "maxLength": length,
            "pattern": f"^{ISSUED_PATTERN}$",
            "x-issued": True,
        }
    lengths = {
        "minLength": MIN_SHARED_KEY if terms.anonymous == "shared" else 1,
        "maxLength": profile.max_length,
    }
    pattern = profile.pattern
    if wanted != ANY:
        pattern = wanted.pattern if isinstance(wanted, re.Pattern) else wanted
    return {**lengths, **({"pattern": f"^(?:{pattern})$"} if pattern else {})}


def _scope(terms: Resolved) -> str:
    """Say whose keys never meet."""
    if terms.anonymous == "shared":
        return "all clients"
    return "user" if terms.scope is None else "client"


def _remembered(terms: Resolved) -> dict[str, Any]:
    """Return the classes of statuses that are replayed, and which of their statuses are not."""
    chosen: Any = terms.keep
    wanted: frozenset[int] = frozenset()
    if chosen is not None and not callable(chosen) and chosen != WRITTEN:
        wanted = frozenset(chosen)
    weighed = weighs_writes(
        chosen,
        leases=terms.guarantee is Guarantee.LEASE,
        selected=terms.key is not None,
        remembers=terms.profile.remembers,
    )
    known = [status.value for status in HTTPStatus if status.value >= 200]
    kept = [status for status in known if _is_kept(status, wanted, terms.profile)]
    classes = sorted({status // 100 for status in kept})
    return {
        "statuses": [f"{first}XX" for first in classes],
        "except": [status for status in known if status // 100 in classes and status not in kept],
        "chosen": callable(chosen) or weighed,
    }


def _compared(terms: Resolved) -> str:
    """Say what makes a request another one under the same key."""
    if terms.fingerprint == "headers":
        return "headers"
    return "request" if terms.fingerprint in ("request", "raw") else "selected"


def _replays(terms: Resolved) -> dict[str, Any]:
    """Return how a replay is told from a first response, and in what else it differs from that."""
    profile = terms.profile
    statuses = {str(first): replay for first, replay in profile.replays_as.items()}
    return {
        **({"marker": {"name": profile.marker, "value": "true"}} if profile.marker else {}),
        **({"statuses": statuses} if statuses else {}),
        "body": "first" if terms.on_replay is None else "current",
    }


def _is_kept(status: int, wanted: frozenset[int], profile: Dialect) -> bool:
    return classify_status(status, status in wanted or None, profile.remembers) is WorkResult.KEPT


def iso_duration(seconds: float) -> str:
    """Return a duration as ISO 8601 has it, without the parts that are zero: `P1D`, `PT1H30M`."""
    minutes, left = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    days, hours = divmod(hours, 24)
    parts = ((hours, "H"), (minutes, "M"), (left, "S"))
    time = "".join(f"{part:g}{unit}" for part, unit in parts if part)
    return f"P{f'{days}D' if days else ''}{f'T{time}' if time else ''}" if days or time else "PT0S"
