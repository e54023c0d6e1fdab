"""Checks of IDEMPOTENCY, its stores and IDEMPOTENCY_DISABLED. Nothing here connects."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from django.apps import apps
from django.conf import settings as django_settings
from django.core.checks import CheckMessage
from django.utils.module_loading import import_string

from .. import conf
from ..core.lifetime import MARGIN
from ..core.policy import FIELDS, FINGERPRINTS, SELECTING, Policy, profile_contradiction, seconds
from ..core.profiles.profile import is_free
from ..core.records import Guarantee
from ..core.selectors import Selector
from ..errors import ConfigurationError
from ..http.exemptions import parsed
from ..http.selection import compiled
from ..instrumentation.meters import meters
from ..runtime import switch
from .catalogue import closest, finding, shown, type_named
from .stores import check_stores

#: An http(s) URL, or a path from the root. A fragment is added, and it is part of a header: no `"`, `#`, `<` or `>`.
_PAGE = re.compile(r"(https?://(?=.)|/(?!/))[!$-;=?-~]*")


def check_settings(**_: Any) -> list[CheckMessage]:
    """Check IDEMPOTENCY, its stores and the environment."""
    found = getattr(django_settings, conf.NAME, None)
    if found is not None and not isinstance(found, dict):
        return [*_environment(), finding("E001", found=type_named(found))]
    encryption = [*_encryption()]
    return [
        *_environment(),
        *_names(found or {}),
        *_fields(),
        *_takeovers(),
        *_floods(),
        *_durations(),
        *_http(),
        *_profile(),
        *_secrets(),
        *encryption,
        *_metrics(),
        *_exemptions(),
        *_replay_through(),
        *(() if encryption else check_stores()),  # without its keys no store can be built
    ]


def _environment() -> Iterator[CheckMessage]:
    try:
        switch.of_environment()
    except ConfigurationError:
        yield finding("E044", value=shown(os.environ[switch.VARIABLE]))


def check_environment(**_: Any) -> list[CheckMessage]:
    """Check that idempotency is not disabled in production; for --deploy."""
    with suppress(ConfigurationError):  # reported as E044
        if not switch.of_environment():
            return [finding("W059", value=shown(os.environ[switch.VARIABLE]))]
    return []


def _names(declared: Mapping[Any, Any]) -> Iterator[CheckMessage]:
    for name in declared:
        if name not in conf.DEFAULTS:
            yield finding(
                "E002", name=name, close=closest(str(name).upper(), conf.DEFAULTS), known=", ".join(conf.DEFAULTS)
            )
        elif (
            declared[name]
            and (app := conf.SETTINGS[name].app if name in conf.SETTINGS else "")
            and not apps.is_installed(app)
        ):
            yield finding("E110", name=name, app=app)


# ------------------------------------------------------------------------------------------------------- each alone


def _fields() -> Iterator[CheckMessage]:
    for field in FIELDS:
        name = field.upper()
        try:
            value = conf.imported(name)
        except Exception as error:  # noqa: BLE001 - importing runs the project's code
            yield finding("E004", name=name, value=shown(conf.get(name)), error=shown(error), function=field)
            continue
        if (expected := complaint(field, value)) is not None:
            yield senseless(name, expected)
        elif isinstance(value, (str, Selector)) and field in SELECTING and value not in FINGERPRINTS:
            yield from _expression(name, value)
    if conf.get("KEY") is not None and conf.get("ANONYMOUS") == "shared":
        problem = '"ANONYMOUS" is "shared", so equal payloads of two clients would get one response'
        fix = '"ANONYMOUS": "refuse", and "SCOPE": the dotted path of a function that identifies the client'
        yield finding("E043", name="KEY", value=shown(conf.get("KEY")), problem=problem, fix=fix)


def _floods() -> Iterator[CheckMessage]:
    if conf.get("FRESH_KEYS_BY") is not None and conf.get("FRESH_KEYS") is None:
        yield finding("E093")
    if conf.get("SUSPECT") is not None and (conf.get("SUSPECT_ACTION"), conf.get("ANONYMOUS")) == ("refuse", "shared"):
        yield finding("E104")
    if conf.get("CACHE") not in django_settings.CACHES:
        yield finding(
            "E094", value=shown(conf.get("CACHE")), close=closest(str(conf.get("CACHE")), django_settings.CACHES)
        )


def _takeovers() -> Iterator[CheckMessage]:
    if conf.get("ON_TAKEOVER") is not None and conf.get("GUARANTEE") == Guarantee.ATOMIC:
        yield finding("E092")
    if conf.get("UNDO_ON") and conf.get("GUARANTEE") == Guarantee.ATOMIC:
        yield finding("E131")


def _expression(name: str, value: str | Selector) -> Iterator[CheckMessage]:
    try:
        compiled(value)
    except ValueError as error:
        fix = f'"{name}": "body.order_id", or the dotted path of a function of the request'
        yield finding("E043", name=name, value=shown(value), problem=str(error).rstrip("."), fix=fix)


def complaint(field: str, value: Any) -> str | None:
    """Return what `Policy` expects of a field if the value is invalid, else `None`."""
    try:
        Policy(**{field: value})
    except ValueError as error:
        return str(error).removeprefix(f"Policy({field}={value!r}): {field} is ").removesuffix(".")
    return None


def senseless(name: str, expected: str) -> CheckMessage:
    """Build the message for a setting whose value cannot be used."""
    if name.lower() in FIELDS and FIELDS[name.lower()].by_path:
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
        yield senseless("CLAIM_LEASE", expected)
    lifetime = conf.get("LIFETIME")
    if complaint("lease", lifetime) is not None or seconds(lifetime) <= MARGIN.total_seconds():
        yield senseless("LIFETIME", "more than a minute, in seconds or as a timedelta: what your providers remember")
    if complaint("ttl", conf.get("TTL")) is not None:
        return
    ttl = seconds(conf.get("TTL"))
    for name in ("LEASE", "CLAIM_LEASE"):
        if complaint("lease", conf.get(name)) is None and (lease := seconds(conf.get(name))) >= ttl:
            yield finding("E005", name=name, lease=f"{lease:g}", ttl=f"{ttl:g}")


def _http() -> Iterator[CheckMessage]:
    header = conf.get("HEADER")
    if not is_free(header):
        yield finding("E006", value=shown(header))
    request_id = conf.get("REQUEST_ID_HEADER")
    if request_id is not None and not is_free(request_id):
        expected = "None, or the name of a header that HTTP itself does not use: letters, digits and hyphens"
        yield senseless("REQUEST_ID_HEADER", expected)
    docs = conf.get("PROBLEM_DOCS")
    if docs is not None and not (isinstance(docs, str) and _PAGE.fullmatch(docs)):
        expected = 'None, or the URL of a page without a fragment, such as "https://api.example.com/problems/"'
        yield senseless("PROBLEM_DOCS", expected)


def _profile() -> Iterator[CheckMessage]:
    try:
        terms = conf.resolve(Policy())
    except Exception:  # noqa: BLE001 - reported above, with the setting that is wrong
        return
    if (problem := profile_contradiction(terms)) is not None:
        yield finding("E087", problem=problem.rstrip("."))
    if "HEADER" in conf.project_settings() and terms.profile.name != conf.DEFAULTS["PROFILE"]:
        field, name = terms.profile.field, terms.profile.name
        yield finding("W087", value=shown(conf.get("HEADER")), name=name, field=field, carrier=terms.profile.carrier)


def _secrets() -> Iterator[CheckMessage]:
    secret = conf.get("DERIVE_SECRET")
    if secret is not None and not _is_secret(secret):
        yield finding("E007", name="DERIVE_SECRET", found=_kind(secret))
    earlier = conf.get("DERIVE_SECRET_FALLBACKS")
    if not isinstance(earlier, (list, tuple)):
        yield finding("E007", name="DERIVE_SECRET_FALLBACKS", found=f"{_kind(earlier)}, not a list")
    elif wrong := [value for value in earlier if not _is_secret(value)]:
        yield finding("E007", name="DERIVE_SECRET_FALLBACKS", found=_kind(wrong[0]))


def _encryption() -> Iterator[CheckMessage]:
    for name in ("HASH_KEYS", "COUNT_REPLAYS"):
        if not isinstance(conf.get(name), bool):
            yield senseless(name, "True or False")
    if (keys := conf.get("ENCRYPTION_KEYS")) != []:
        yield from import_string("django_idempotency.contrib.at_rest.checks.check_keys")(keys)


def _metrics() -> Iterator[CheckMessage]:
    if meters.problem:  # they were made when the process started: a second one might register its metrics twice
        yield finding("E090", value=shown(conf.get("METRICS")), problem=meters.problem.rstrip("."))


def _exemptions() -> Iterator[CheckMessage]:
    entries = conf.get("EXEMPT")
    if not isinstance(entries, (list, tuple)):
        yield finding("E068", problem=f"it is {type_named(entries)}, not a list")
        return
    for entry in entries:
        try:
            parsed(entry)
        except Exception as error:  # noqa: BLE001 - importing runs the project's code
            yield finding("E068", problem=" ".join(str(error).split()).rstrip("."))


def _replay_through() -> Iterator[CheckMessage]:
    entries = conf.get("REPLAY_THROUGH")
    try:
        known = isinstance(entries, (list, tuple)) and all(callable(import_string(each)) for each in entries)
    except Exception:  # noqa: BLE001 - importing runs the project's code
        known = False
    if not known:
        yield senseless("REPLAY_THROUGH", "REPLAY_THROUGH is a list of dotted paths of decorators and of view classes")


def _is_secret(value: Any) -> bool:
    return isinstance(value, (str, bytes)) and len(value) > 0


def _kind(value: Any) -> str:
    return "nothing" if value in ("", b"") else type_named(value)
