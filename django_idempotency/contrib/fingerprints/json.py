"""The fingerprint of a JSON body without the members that differ in each retry: times, trace
ids.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.http.request import RawPostDataException

from ...api import canonical_json, is_deep
from ...api.requests import fits
from ...errors import INSTALL

#: Members, and each element of a list: `sent_at`, `trace.id`, `items[].line_id`, `[].id`.
_PATH = re.compile(r"(?:(?:\[\])+\.)?[^.\[\]]+(?:\[\])*(?:\.[^.\[\]]+(?:\[\])*)*")
_STEP = re.compile(r"[^.\[\]]+|\[\]")
#: Members with these names are steps of JSONPath and JMESPath, or JSON Pointers: nobody means a
#: member of that name.
_OTHER_LANGUAGE = re.compile(r"[$@*]|/.*")

Numbers = Literal["exact", "rfc8785"]


def json_body(*, exclude: Collection[str] = (), numbers: Numbers = "exact") -> JSONBody:
    """Return a `fingerprint` for a `Policy`: the JSON by value, less the members that `exclude`
    names by their paths.

    Such as `Policy(fingerprint=json_body(exclude=["sent_at", "trace.id", "items[].line_id"]))`.

    `numbers="exact"`: 1, 1.0 and 1e0 are three numbers, as without this. "rfc8785": they are one,
    as for clients that write numbers as JavaScript does (RFC 8785 section 3.2.2.3); it needs the
    package rfc8785.

    JSON that is nested deeper than 128 levels counts by the text of its numbers, under both. A path
    that finds nothing excludes nothing. A body that is not JSON, has a name twice, or is longer
    than 64 KiB is compared whole, as with `fingerprint="request"`. Raises `ValueError` for a path
    or a word that is not one, `TypeError` for one text in place of a list, and
    `ImproperlyConfigured` without the package.
    """
    if isinstance(exclude, str):
        raise TypeError(
            f"json_body(exclude={exclude!r}): type a list, such as exclude=[{exclude!r}]."
        )
    paths = tuple(exclude)
    for path in paths:
        if not isinstance(path, str):
            raise TypeError(f'json_body(exclude=[{path!r}]): a path is text, such as "sent_at".')
        if not _PATH.fullmatch(path) or any(
            _OTHER_LANGUAGE.fullmatch(step) for step in _STEP.findall(path)
        ):
            raise ValueError(
                f"json_body(exclude=[{path!r}]): a path names members of objects, and [] "
                "each element of a list, such as "
                '"sent_at", "trace.id" or "items[].line_id".'
            )
    if numbers not in {"exact", "rfc8785"}:
        raise ValueError(f'json_body(numbers={numbers!r}): numbers is "exact" or "rfc8785".')
    if numbers == "rfc8785":
        _rfc8785()
    return JSONBody(tuple(tuple(_STEP.findall(path)) for path in paths), numbers)


@dataclass(frozen=True)
class JSONBody:
    """See json_body(). Two with the same terms are equal, as the policies that have them."""

    exclude: tuple[tuple[str, ...], ...]
    numbers: Numbers

    def __call__(self, request: Any) -> bytes:
        """Return the canonical body. Raises `ValueError` for one that must be compared whole."""
        http: HttpRequest = getattr(request, "_request", request)
        if not fits(http):
            raise ValueError("It is too long to read.")
        try:
            return self.of(http.body)
        except RawPostDataException as error:
            raise ValueError("It was read already.") from error

    def of(self, body: bytes) -> bytes:
        """Return what is compared of a body.

        Raises `ValueError` for one that must be compared whole.
        """
        exact = canonical_json(body, self._prune)
        if exact is None:
            raise ValueError("It is not JSON that can be compared by value.")
        if self.numbers == "exact":
            return exact
        value = json.loads(body)
        self._prune(value)
        if is_deep(value):  # the package recurses, and how deep it may depends on who calls it
            return exact
        try:
            return bytes(_rfc8785().dumps(value))
        except (
            ValueError
        ):  # RFC 8785 has no integers beyond 2^53, and no number beyond a double's range
            return exact

    def _prune(self, value: Any) -> None:
        for path in self.exclude:
            remove(value, path)


def remove(value: Any, path: tuple[str, ...]) -> None:
    """Remove what a path names from JSON that is read, where it is there."""
    step = path[0]
    rest = path[1:]
    if step == "[]":
        for each in value if isinstance(value, list) and rest else ():
            remove(each, rest)
        if isinstance(value, list) and not rest:
            value.clear()
    elif isinstance(value, dict) and not rest:
        value.pop(step, None)
    elif isinstance(value, dict) and step in value:
        remove(value[step], rest)


def _rfc8785() -> Any:
    try:
        import rfc8785  # an extra
    except ImportError as error:
        raise ImproperlyConfigured(
            'json_body(numbers="rfc8785") needs rfc8785. Type: ' + INSTALL.format("rfc8785")
        ) from error
    return rfc8785
