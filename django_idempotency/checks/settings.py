"""Are IDEMPOTENCY and its stores what they should be? Nothing here connects to anything."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from django.conf import settings as django_settings
from django.core.checks import CheckMessage

from .. import conf
from ..core.policy import FIELD_NAMES, Policy, seconds
from .catalogue import a, closest, finding, shown
from .stores import check_stores

_TOKEN = re.compile(r"[A-Za-z0-9]+(-[A-Za-z0-9]+)*")
#: Headers that mean something else, and those that WSGI does not hand on as HTTP_…
_TAKEN = frozenset({"accept", "authorization", "connection", "content-length", "content-type", "cookie", "host"})
_URL = re.compile(r"[!#-;=?-~]+")


def check_settings(**_: Any) -> list[CheckMessage]:
    """Check IDEMPOTENCY and its stores."""
    found = getattr(django_settings, conf.NAME, None)
    if found is not None and not isinstance(found, dict):
        return [finding("E001", found=a(found))]
    return [*_names(found or {}), *_fields(), *_durations(), *_http(), *_secrets(), *check_stores()]


def _names(declared: Mapping[Any, Any]) -> Iterator[CheckMessage]:
    for name in declared:
        if name not in conf.DEFAULTS:
            yield finding(
                "E002", name=name, close=closest(str(name).upper(), conf.DEFAULTS), known=", ".join(conf.DEFAULTS)
            )


# ------------------------------------------------------------------------------------------------------- each alone


def _fields() -> Iterator[CheckMessage]:
    for field in FIELD_NAMES:
        name = field.upper()
        try:
            value = conf.imported(name)
        except Exception as error:  # noqa: BLE001 - importing runs the project's code
            yield finding("E004", name=name, value=shown(conf.get(name)), error=shown(error), function=field)
            continue
        if (expected := complaint(field, value)) is not None:
            yield _senseless(name, expected)


def complaint(field: str, value: Any) -> str | None:
    """Return what `Policy` says a field should be, if the value is not that."""
    try:
        Policy(**{field: value})
    except ValueError as error:
        return str(error).removeprefix(f"Policy({field}={value!r}): {field} is ").removesuffix(".")
    return None


def _senseless(name: str, expected: str) -> CheckMessage:
    if name in conf.IMPORTED:
        expected = expected.replace("a function of", "a function (or the dotted path of one) of")
    return finding(
        "E003",
        name=name,
        value=shown(conf.get(name)),
        expected=f"{name} is {expected}",
        default=repr(conf.DEFAULTS[name]).replace("'", '"'),
    )


def _durations() -> Iterator[CheckMessage]:
    if (expected := complaint("lease", conf.get("CLAIM_LEASE"))) is not None:
        yield _senseless("CLAIM_LEASE", expected)
    if complaint("ttl", conf.get("TTL")) is not None:
        return
    ttl = seconds(conf.get("TTL"))
    for name in ("LEASE", "CLAIM_LEASE"):
        if complaint("lease", conf.get(name)) is None and (lease := seconds(conf.get(name))) >= ttl:
            yield finding("E005", name=name, lease=f"{lease:g}", ttl=f"{ttl:g}")


def _http() -> Iterator[CheckMessage]:
    header = conf.get("HEADER")
    if not isinstance(header, str) or not _TOKEN.fullmatch(header) or header.lower() in _TAKEN:
        yield finding("E006", value=shown(header))
    docs = conf.get("PROBLEM_DOCS")
    if not isinstance(docs, str) or not _URL.fullmatch(docs):
        yield _senseless("PROBLEM_DOCS", "the address of a page, without a fragment, spaces or quotes")


def _secrets() -> Iterator[CheckMessage]:
    secret = conf.get("DERIVE_SECRET")
    if secret is not None and not _is_secret(secret):
        yield finding("E007", name="DERIVE_SECRET", found=_kind(secret))
    earlier = conf.get("DERIVE_SECRET_FALLBACKS")
    if not isinstance(earlier, (list, tuple)):
        yield finding("E007", name="DERIVE_SECRET_FALLBACKS", found=f"{_kind(earlier)}, not a list")
    elif wrong := [value for value in earlier if not _is_secret(value)]:
        yield finding("E007", name="DERIVE_SECRET_FALLBACKS", found=_kind(wrong[0]))


def _is_secret(value: Any) -> bool:
    return isinstance(value, (str, bytes)) and len(value) > 0


def _kind(value: Any) -> str:
    return "nothing" if value in ("", b"") else a(value)
