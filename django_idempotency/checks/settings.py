"""Checks of IDEMPOTENCY, its stores and IDEMPOTENCY_DISABLED. Nothing here connects."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from typing import Any

from django.conf import settings as django_settings
from django.core.checks import ERROR, CheckMessage
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from .. import conf, scopes
from ..core.policy import FIELDS, FINGERPRINTS, RENAMED, SELECTING, Policy
from ..core.records import Guarantee
from ..core.selectors import Selector
from ..errors import ConfigurationError
from ..http.admission import compile_expressions
from ..http.exemptions import exemptions, policy_at
from ..http.plan import ANY_POLICY, plan_of
from ..http.selection import compiled
from ..instrumentation.meters import meters
from ..runtime import switch
from ..stores.check_messages import Finding, closest, shown, type_named
from .stores import check_stores


class E001(Finding):
    """IDEMPOTENCY is %(found)s, not a dict.

    Type IDEMPOTENCY = {"TTL": 86400}, or leave it out: every setting has a default.
    """


class E002(Finding):
    """IDEMPOTENCY["%(name)s"] is not a setting, and is not applied.

    Type %(line)s.
    """


class E003(Finding):
    """IDEMPOTENCY["%(name)s"] = %(value)s is not valid.

    %(expected)s. Type "%(name)s": %(default)s, or leave it out.
    """


class E004(Finding):
    """IDEMPOTENCY["%(name)s"] = %(value)s cannot be imported: %(error)s.

    Type the dotted path of a function, such as "%(name)s": "shop.idempotency.%(function)s".
    """


class E005(Finding):
    """The settings have %(name)s, which nobody reads.

    Type IDEMPOTENCY = {%(close)s}, with all settings of django-idempotency in this one dict.
    """


class E043(Finding):
    """IDEMPOTENCY["%(name)s"] = %(value)s cannot select: %(problem)s.

    Type "%(name)s": "body.order_id", or the dotted path of a function of the request.
    """


class E044(Finding):
    """The environment has IDEMPOTENCY_DISABLED=%(value)s, which means neither yes nor no: guarded
    code raises.

    Type IDEMPOTENCY_DISABLED=1 to disable idempotency, IDEMPOTENCY_DISABLED=0 or nothing to enable
    it.
    """


class W059(Finding):
    """The environment has IDEMPOTENCY_DISABLED=%(value)s: every retry runs again.

    Type IDEMPOTENCY_DISABLED=0, or take it out of the environment of every production service.
    """


class E064(Finding):
    """IDEMPOTENCY["SCOPE"] is "django_idempotency.scopes.session", which cannot tell guests apart:
    %(problem)s.

    Type %(fix)s, or "SCOPE": the dotted path of a function of your own.
    """


class E068(Finding):
    """The routes that are exempt cannot be read: %(problem)s.

    Type "EXEMPT": ["namespace:admin", "module:shop.webhooks", "path:/webhooks/"], or leave it out.
    """


class E087(Finding):
    """The settings contradict each other: %(problem)s

    Type other values in IDEMPOTENCY: a field that is named here is the setting of that name in
    capitals, such as "TTL" for ttl.
    """


class E090(Finding):
    """IDEMPOTENCY["METRICS"] = %(value)s measures nothing: %(problem)s.

    Type "METRICS": "shop.metrics.ShopMeter", the dotted path of a subclass of Meter, or a list of
    such; the page of metrics has those of PrometheusMeter and OpenTelemetryMeter. Or leave it out.
    """


class E110(Finding):
    """IDEMPOTENCY["%(name)s"] is for the app "%(app)s", which INSTALLED_APPS does not have.

    Add "%(app)s" to INSTALLED_APPS, and type python manage.py migrate; or leave "%(name)s" out.
    """


class E145(Finding):
    """IDEMPOTENCY["ROUTES"] cannot be read: %(problem)s.

    Type "ROUTES": {"name:payments:charge": {"required": True, "ttl": 86400}}, or leave it out.
    """


_PREFIX = f"{conf.NAME}_"
_SESSIONS = "django.contrib.sessions.middleware.SessionMiddleware"
_COOKIES = "django.contrib.sessions.backends.signed_cookies"
_KEPT_SESSIONS = 'SESSION_ENGINE = "django.contrib.sessions.backends.db"'


def check_settings(**_: Any) -> list[CheckMessage]:
    """Check IDEMPOTENCY, its stores and the environment: each setting alone, and then what they say
    together.
    """
    found = getattr(django_settings, conf.NAME, None)
    astray = [*_environment(), *_astray()]
    if found is not None and not isinstance(found, dict):
        return [*astray, E001(found=type_named(found))]
    wrong = [
        *astray,
        *_names(found or {}),
        *_values(),
        *_fields(),
        *_metrics(),
        *_exemptions(),
        *_routes(),
        *check_stores(),
    ]
    return wrong or [*_together()]


def after_settings(
    check: Callable[..., Iterator[CheckMessage]],
) -> Callable[..., list[CheckMessage]]:
    """Let a check run once the settings are in order, which it reads.

    What is wrong with them is reported once.
    """

    @functools.wraps(check)
    def checked(**given: Any) -> list[CheckMessage]:
        return [] if any(each.level >= ERROR for each in check_settings()) else list(check(**given))

    return checked


@after_settings
def check_scope(**_: Any) -> Iterator[CheckMessage]:
    """Check that the ready-made SCOPE for guests has sessions to tell them apart by."""
    if conf.imported("SCOPE") is not scopes.session:
        return
    if django_settings.SESSION_ENGINE == _COOKIES:
        yield E064(
            problem=f"SESSION_ENGINE is {shown(_COOKIES)}, whose keys change", fix=_KEPT_SESSIONS
        )
    elif not any(
        path.endswith("SessionMiddleware") for path in django_settings.MIDDLEWARE
    ):  # the project's own, too
        yield E064(
            problem="MIDDLEWARE has no SessionMiddleware", fix=f'"{_SESSIONS}" in MIDDLEWARE'
        )


@after_settings
def check_left_out(**given: object) -> Iterator[CheckMessage]:
    """Let each app that is shipped say whether it is missed, installed or not."""
    return told_by_apps("advice", given)


@after_settings
def check_left_out_deployed(**given: object) -> Iterator[CheckMessage]:
    """Do the same with what only --deploy tells."""
    return told_by_apps("deployed_advice", given)


def told_by_apps(attribute: str, given: dict[str, object]) -> Iterator[CheckMessage]:
    """Run the checks that an attribute of their configs names."""
    for app in conf.shipped_apps():
        for path in getattr(app, attribute, ()):
            yield from import_string(f"{app.name}.{path}")(**given)


def check_environment(**_: Any) -> list[CheckMessage]:
    """Check that idempotency is not disabled in production; for --deploy."""
    with suppress(ConfigurationError):  # reported as E044
        if not switch.of_environment():
            return [W059(value=shown(os.environ[switch.VARIABLE]))]
    return []


def _environment() -> Iterator[CheckMessage]:
    try:
        switch.of_environment()
    except ConfigurationError:
        yield E044(value=shown(os.environ[switch.VARIABLE]))


def _astray() -> Iterator[CheckMessage]:
    """Find settings beside IDEMPOTENCY that are meant for it: IDEMPOTENCY_REQUIRED, or a dict of
    another name.
    """
    known = conf.defaults()
    for name in dir(django_settings):
        if name == conf.NAME or not name.isupper() or "IDEMPOTEN" not in name:
            continue
        value = getattr(django_settings, name)
        meant = [key for key in value if key in known] if isinstance(value, dict) else []
        if name.startswith(_PREFIX):
            meant += get_close_matches(name.removeprefix(_PREFIX), known, n=1, cutoff=0.85)
        if meant:
            yield E005(name=name, close=", ".join(f'"{key}": …' for key in meant))


def _names(declared: Mapping[Any, Any]) -> Iterator[CheckMessage]:
    known = conf.defaults()
    for name in declared.keys() - known.keys():
        app = conf.app_with(name)
        if app is None:
            similar = closest(str(name).upper(), known)
            line = f'"{similar}", if that is meant, or one of these: {", ".join(known)}'
            yield E002(name=name, line=RENAMED.get(str(name).lower(), line))
        elif declared[name]:
            yield E110(name=name, app=app)


# --------------------------------------------------------------------------------------- each alone


def _values() -> Iterator[CheckMessage]:
    for name, setting in {**conf.SETTINGS, **conf.app_settings()}.items():
        if setting.accepts is not None and not setting.accepts(conf.get(name)):
            yield senseless(name, setting.expected, secret=setting.secret)


def senseless(name: str, expected: str, *, secret: bool = False) -> CheckMessage:
    """Build the message for a setting whose value cannot be used."""
    of = FIELDS.get(name.lower())
    if of is not None and of.by_path:
        expected = expected.replace("a function of", "a function (or the dotted path of one) of")
    value = conf.get(name)
    default = repr(conf.defaults()[name]).replace("'", '"')
    return E003(
        name=name,
        value=(type_named if secret else shown)(value),
        expected=f"{name} is {expected}",
        default=default,
    )


def _fields() -> Iterator[CheckMessage]:
    for field, of in FIELDS.items():
        name = field.upper()
        try:
            value = conf.imported(name)
        except Exception as error:  # noqa: BLE001 - importing runs the project's code
            yield E004(name=name, value=shown(conf.get(name)), error=shown(error), function=field)
            continue
        expected = of.asks_for(value)
        if expected is not None:
            yield senseless(name, expected)
        elif (
            isinstance(value, (str, Selector)) and field in SELECTING and value not in FINGERPRINTS
        ):
            try:
                compiled(value)
            except ValueError as error:
                yield E043(name=name, value=shown(value), problem=str(error).rstrip("."))


def _metrics() -> Iterator[CheckMessage]:
    # They were made when the process started: a second one might register its metrics twice.
    if meters.problem:
        yield E090(value=shown(conf.get("METRICS")), problem=meters.problem.rstrip("."))


def _routes() -> Iterator[CheckMessage]:
    """Check each entry of ROUTES alone. What it guards is a check of the URLconf."""
    entries = conf.get("ROUTES")
    if not isinstance(entries, dict):
        yield E145(problem=f"it is {type_named(entries)}, not a dict")
        return
    for entry, fields in entries.items():
        try:
            _, policy = policy_at(entry, fields)
            compile_expressions(policy)
        except Exception as error:  # noqa: BLE001 - importing runs the project's code
            yield E145(problem=str(error).rstrip("."))


def _exemptions() -> Iterator[CheckMessage]:
    try:
        exemptions()
    except Exception as error:  # noqa: BLE001 - importing runs the project's code
        yield E068(problem=str(error).rstrip("."))


# ----------------------------------------------------------------------------------------- together


def _together() -> Iterator[CheckMessage]:
    """Compile the settings for policies of either guarantee, and for one that says nothing."""
    try:
        for guarantee in Guarantee:
            conf.resolve(Policy(guarantee=guarantee))
        plan_of(ANY_POLICY).compile()
    except (ConfigurationError, ImproperlyConfigured, ValueError) as error:
        yield E087(problem=error)
