"""The project's settings, typed.

What is compiled from them is kept until Django's signal `setting_changed`, so `override_settings`
simply works.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakSet

from django.apps import AppConfig, apps
from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from .core.dialects import EXPECTED, Default, Dialect, dialect_of, is_dialect, is_free
from .core.policy import (
    DOCUMENT,
    DURATION,
    FIELDS,
    RENAMED,
    SELECTING,
    Policy,
    Resolved,
    is_duration,
    is_flag,
    refuse_invalid,
    seconds,
)
from .core.records import MISSING, Guarantee, UnprintedBytes, UnprintedText

NAME = "IDEMPOTENCY"
APP = "django_idempotency"
#: Its folder, in which the apps are that are shipped with it.
PACKAGE = Path(__file__).parent


class Setting(NamedTuple):
    """A setting that is no field of `Policy`: one of `SETTINGS`, or of an optional app, whose
    config declares it in `idempotency_settings`. `manage.py check` reads the rest of the tuple.
    """

    default: Any
    #: `None`: a check of its own knows more.
    accepts: Callable[[Any], bool] | None = None
    #: In words what to type.
    expected: str = ""
    #: May it hold a secret, so that no message shows its value?
    secret: bool = False


def _is_header(value: Any) -> bool:
    return value is None or is_free(value)


#: The fewest characters, or bytes, of a secret that keys are derived with.
MIN_SECRET = 16


def _is_secret(value: Any, least: int = 1) -> bool:
    return isinstance(value, (str, bytes)) and len(value) >= least


def _is_lifetime(value: Any) -> bool:
    from .core.lifetime import MARGIN  # not above: only checks need it

    return is_duration(value) and seconds(value) > MARGIN.total_seconds()


#: An http(s) URL, or a path from the root. A fragment is added, and it is part of a header: no `"`,
#: `#`, `<` or `>`.
_PAGE = re.compile(r"(https?://(?=.)|/(?!/))[!$-;=?-~]*")
_HEADER = "the name of a header that HTTP itself does not use: letters, digits and hyphens"

SETTINGS: dict[str, Setting] = {
    # Where records live: alias → {"BACKEND": dotted path, "OPTIONS": keyword arguments}, like
    # CACHES.
    "STORES": Setting(
        {
            "default": {
                "BACKEND": "django_idempotency.stores.orm.ORMStore",
                "OPTIONS": {"using": "default"},
            }
        }
    ),
    # The request header that carries the key, in the profile "default".
    "HEADER": Setting("Idempotency-Key", is_free, _HEADER),
    # The request header with the request's own id, which replays name as `Original-Request`; None:
    # do not read one.
    "REQUEST_ID_HEADER": Setting("X-Request-ID", _is_header, f"None, or {_HEADER}"),
    # `atomic` only: seconds between claim and row lock. After it a dead worker's key may be taken
    # over.
    "CLAIM_LEASE": Setting(1, is_duration, DURATION),
    # The secret of derive(); None: SECRET_KEY. Earlier secrets, so that a later attempt derives the
    # same key: a short one can be left behind, so it may stand among these.
    "DERIVE_SECRET": Setting(
        None,
        lambda value: value is None or _is_secret(value, MIN_SECRET),
        f"text or bytes of at least {MIN_SECRET} characters that cannot be guessed, such "
        'as os.environ["DERIVE_SECRET"], or '
        "None for SECRET_KEY",
        secret=True,
    ),
    "DERIVE_SECRET_FALLBACKS": Setting(
        [],
        lambda value: isinstance(value, (list, tuple)) and all(map(_is_secret, value)),
        "a list of the earlier secrets, each non-empty text or bytes",
        secret=True,
    ),
    # How long a key may be used elsewhere, from its first use: what your providers remember.
    # Seconds or a timedelta.
    "LIFETIME": Setting(
        86400,
        _is_lifetime,
        "more than a minute, in seconds or as a timedelta: what your providers remember",
    ),
    # Keys that seal stored responses and waiting messages: 32 bytes each, in base64. The first
    # seals, all open.
    "ENCRYPTION_KEYS": Setting([]),
    # Are replays and mismatches counted, in memory and written in batches? For the admin; the
    # counts are lower bounds.
    "COUNT_REPLAYS": Setting(False, is_flag, "True or False"),
    # Are scopes and keys stored as keyed hashes? The secret is that of derive().
    "HASH_KEYS": Setting(False, is_flag, "True or False"),
    # The page that the `type` of a problem document links to, with the code as the fragment; None:
    # `type` is a URN.
    "PROBLEM_DOCS": Setting(
        None,
        lambda value: (
            value is None or (isinstance(value, str) and _PAGE.fullmatch(value) is not None)
        ),
        "None, or the URL of a page without a fragment, such as "
        '"https://api.example.com/problems/"',
    ),
    # What the middleware does not guard: a list of "name:…", "namespace:…", "module:…", "path:…",
    # "regex:…", "function:…".
    "EXEMPT": Setting([]),
    # Policies of views that the project cannot edit, which the middleware guards: pattern → fields.
    # The first that matches counts.
    "ROUTES": Setting({}),
    # The alias of CACHES in which extensions count and remember.
    "CACHE": Setting(
        "default",
        lambda value: isinstance(value, str) and value in django_settings.CACHES,
        "an alias of CACHES",
    ),
    # What counts: the dotted path of a Meter, or a list of these; None: nothing is counted.
    "METRICS": Setting(None),
}

#: The keys of `settings.IDEMPOTENCY` that no optional app declares, and their defaults. A field of
#: `Policy` in capitals is the default of that field.
DEFAULTS: dict[str, Any] = {
    **{name: setting.default for name, setting in SETTINGS.items()},
    **{name.upper(): of.default for name, of in FIELDS.items()},
}

S = TypeVar("S")
T = TypeVar("T")


class _Compiled(Generic[S, T]):
    """An attribute that is made when it is first asked for, and lives as long as its object.

    A project may make a policy for each request.
    """

    def __init__(self, name: str, make: Callable[[S], T]) -> None:
        self._name = name
        self._make = make
        self._made: WeakSet[Any] = WeakSet()

    def __get__(self, of: S, _: Any) -> T:
        made = vars(of)[self._name] = self._make(of)  # from now on Python finds it there
        self._made.add(of)
        return made

    def forget(self) -> None:
        for of in list(self._made):
            vars(of).pop(self._name, None)
        self._made.clear()


_COMPILED: list[_Compiled[Any, Any]] = []


def compiled(cls: type[S], make: Callable[[S], T]) -> Callable[[S], T]:
    """Return a function that keeps what `make` compiles of an object, until the settings change."""
    name = f"_compiled_{len(_COMPILED)}"
    _COMPILED.append(_Compiled(name, make))
    setattr(cls, name, _COMPILED[-1])
    return attrgetter(name)


def recompile(**_: Any) -> None:
    """Forget all that was compiled: a setting, a store or a meter has changed."""
    for each in _COMPILED:
        each.forget()
    _profile_of.cache_clear()
    _extension_at.cache_clear()
    app_settings.cache_clear()


setting_changed.connect(recompile)


def require_installed() -> None:
    """Raise `ImproperlyConfigured` if the app is not installed: without it there is no table, and
    no check says so.
    """
    if apps.apps_ready and not apps.is_installed(APP):
        raise ImproperlyConfigured(
            f'INSTALLED_APPS has no "{APP}". Add it, and type: python manage.py migrate {APP}'
        )


def project_settings() -> Mapping[str, Any]:
    """Return `settings.IDEMPOTENCY` as the project wrote it.

    Raises `ImproperlyConfigured` if it is not a dict.
    """
    found = getattr(django_settings, NAME, None)
    if isinstance(found, dict):
        return found
    if found is None:
        return {}
    raise ImproperlyConfigured(
        f'{NAME} is a dict, such as {{"TTL": 86400}}, not a {type(found).__name__}.'
    )


def get(name: str) -> Any:
    """Return one setting, or its default.

    Raises `KeyError` for a name that is not a setting, nor one of an installed app.
    """
    if name in DEFAULTS:
        return project_settings().get(name, DEFAULTS[name])
    return project_settings().get(name, app_settings()[name].default)


@lru_cache(maxsize=1)
def app_settings() -> dict[str, Setting]:
    """Return the settings of the installed optional apps."""
    found: dict[str, Setting] = {}
    for app in apps.get_app_configs():
        found |= getattr(app, "idempotency_settings", {})
    return found


@lru_cache(maxsize=1)
def shipped_apps() -> list[AppConfig]:
    """Return the configs of the apps in our package, installed or not.

    Only checks and errors need it: it imports the module of each.
    """
    found = []
    for path in sorted(PACKAGE.glob("*/*/apps.py")):
        with suppress(ImportError):  # what the app is for is not installed
            found.append(AppConfig.create(".".join(path.relative_to(PACKAGE.parent).parts[:-1])))
    return found


def app_with(name: str) -> str | None:
    """Return the app of our package that adds what is typed so: a setting, a command, a method of
    a work's handle.
    """
    for app in shipped_apps():
        if any(name in getattr(app, names, ()) for names in ("idempotency_settings", "adds")):
            return app.name
    return None


def defaults() -> dict[str, Any]:
    """Return every key of `settings.IDEMPOTENCY` that is known, and its default."""
    return {**DEFAULTS, **{name: each.default for name, each in app_settings().items()}}


def field(policy: Policy, name: str) -> Any:
    """Return one field of a policy, or else its setting."""
    value = getattr(policy, name)
    return get(name.upper()) if value is MISSING else value


#: What `on_failure` may say under a guarantee, other than "free".
ON_FAILURE = {Guarantee.LEASE: "hold", Guarantee.ATOMIC: "forget"}


def _resolve(policy: Policy) -> Resolved:
    """Fill in what a policy leaves out from the settings.

    Raises `ValueError` when the two contradict each other.
    """
    for name, instead in RENAMED.items():
        if name.upper() in project_settings():
            raise ImproperlyConfigured(
                f'{NAME}["{name.upper()}"] is not a setting any more. Type {instead}.'
            )
    # What is raised here is reported with the variables of this frame: no secret is among them.
    base = {name: imported(name.upper()) for name in FIELDS}
    refuse_invalid(base)
    own = policy.given()
    # A shorter ttl bounds the setting.
    if "ttl" in own and "lease" not in own:
        lease = seconds(base["lease"])
        ttl = seconds(own["ttl"])
        base["lease"] = lease if lease < ttl else ttl / 2
    fields = {**base, **own}
    guarantee = Guarantee(fields["guarantee"])
    # Those of the setting have a say in all calls that they mean something to, unless the policy
    # has said what they decide.
    extensions = [*own.get("extensions", ())]
    said = {name for each in extensions for name in (each.decides, *each.terms)}
    others = [
        each
        for each in base["extensions"]
        if each.decides not in said and (guarantee is Guarantee.LEASE or not each.needs_lease)
    ]
    # The settings may say what they did not when it was made.
    problem = policy.contradiction(base, others)
    if problem is not None:
        if others:
            problem += f" (EXTENSIONS adds {others}: one of that kind in the policy replaces it.)"
        raise ValueError(problem)
    extensions += others
    lease = seconds(fields["lease"])
    if guarantee is Guarantee.ATOMIC:
        lease = claim_lease()
        ttl = seconds(fields["ttl"])
        if lease >= ttl:
            raise ValueError(f'make "CLAIM_LEASE" ({lease:g}) shorter than ttl ({ttl:g}).')
    return Resolved(
        **{
            **fields,
            **{name: value for each in extensions for name, value in each.terms.items()},
            "extensions": tuple(each for each in extensions if each.acts),
            "chosen": tuple(extensions),
            "guarantee": guarantee,
            "on_failure": fields["on_failure"]
            if fields["on_failure"] == ON_FAILURE[guarantee]
            else "free",
            "profile": profile_of(fields["profile"]),
            **{name: seconds(fields[name]) for name in ("ttl", "lease", "wait")},
            "derive_secret": get("DERIVE_SECRET"),
            "request_id_header": meta_name(get("REQUEST_ID_HEADER") or ""),
            "claim_lease": lease,
        }
    )


#: See _resolve(). The result is kept until the settings change.
resolve = compiled(Policy, _resolve)


def profile_of(chosen: Any = MISSING) -> Dialect:
    """Return the dialect of a policy's `profile`; of one that is left out, that of the settings.

    Raises what importing it raises.
    """
    return chosen if isinstance(chosen, Dialect) else _profile_of(chosen)


@lru_cache(maxsize=64)  # one object of a name, and of a class
def _profile_of(chosen: Any) -> Dialect:
    if chosen is MISSING:
        return profile_of(imported("PROFILE"))
    if chosen in (DEFAULTS["PROFILE"], Default):
        return Default(get("HEADER"))
    if not is_dialect(chosen):
        raise ImproperlyConfigured(f'{NAME}["PROFILE"] is {EXPECTED}, not {chosen!r}.')
    return dialect_of(chosen)


@lru_cache(maxsize=64)
def meta_name(header: str) -> str:
    """Return the name of a header in `request.META`; "" for ""."""
    return header and "HTTP_" + header.upper().replace("-", "_")


def claim_lease() -> float:
    """Return the seconds between an `atomic` claim and its row lock."""
    return seconds(get("CLAIM_LEASE"))


def lifetime(label: str) -> timedelta:
    """Return how long a key may be used elsewhere, from its first use.

    That is the LIFETIME of the provider whose alias is the label, or its part before the first
    colon; else the setting.
    """
    own = project_settings().get("PROVIDERS", {}).get(label.partition(":")[0])
    return timedelta(seconds=seconds(get("LIFETIME") if own is None else own["LIFETIME"]))


def derive_secrets() -> list[UnprintedText | UnprintedBytes]:
    """Return the secret of new operations, then those of earlier ones."""
    earlier = [
        *get("DERIVE_SECRET_FALLBACKS"),
        django_settings.SECRET_KEY,
        *django_settings.SECRET_KEY_FALLBACKS,
    ]
    return [derive_secret(), *map(_unprinted, earlier)]


def derive_secret() -> UnprintedText | UnprintedBytes:
    """Return the secret of new operations, text or bytes."""
    return _unprinted(get("DERIVE_SECRET") or django_settings.SECRET_KEY)


def _unprinted(secret: str | bytes) -> UnprintedText | UnprintedBytes:
    return UnprintedBytes(secret) if isinstance(secret, bytes) else UnprintedText(secret)


def imported(name: str) -> Any:
    """Return one setting, with a dotted path imported. Raises what the import raises."""
    return by_path(name.lower(), get(name))


def by_path(field: str, value: Any) -> Any:
    """Return the value of a field in the settings, with a dotted path imported.

    Raises what the import raises.
    """
    if field == "extensions" and isinstance(value, (list, tuple)):
        return tuple(_extension_at(each) if isinstance(each, str) else each for each in value)
    of = FIELDS.get(field)
    if (
        of is not None
        and of.by_path
        and isinstance(value, str)
        and "." in value
        and not _is_expression(field, value)
    ):
        from django.utils.module_loading import import_string

        return import_string(value)
    return value


@lru_cache(maxsize=64)  # of a class, all policies have one object
def _extension_at(path: str) -> Any:
    """Return the object that a dotted path names; of a class, one that is made without
    arguments.
    """
    from django.utils.module_loading import import_string

    found = import_string(path)
    return found() if isinstance(found, type) else found


def _is_expression(field: str, value: str) -> bool:
    """Is it a JMESPath expression and not a dotted path?

    One that begins with a name begins with a document's.
    """
    if field not in SELECTING:
        return False
    return value.partition(".")[0] in DOCUMENT or re.fullmatch(r"\w+(\.\w+)+", value) is None
