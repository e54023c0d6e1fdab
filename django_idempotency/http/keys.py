"""The request's idempotency key, and its scope."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from django.utils.functional import SimpleLazyObject
from django.utils.http import parse_http_date

from .. import conf
from ..core.key_formats import ANY, ISSUED, KeyFault, described, spelled
from ..core.policy import MIN_SHARED_KEY, OBSERVE, Policy, Resolved, seconds
from ..core.profiles import DEFAULT, LONGEST, Profile
from ..core.scope_names import hashed, qualified
from ..errors import ConfigurationError, KeyAhead, KeyExpired, KeyMalformed, KeyTooShort
from ..realms import SAID, realm_of
from ..runtime.wings import wing
from ..scopes import Marked, database_of

if TYPE_CHECKING:
    from django.http import HttpRequest

ANONYMOUS = "anonymous"

# A bare key: visible ASCII and inner spaces, no quote; no comma either, since servers join two headers with one.
_BARE = re.compile(r"[!#-+\--~](?:[ !#-+\--~]*[!#-+\--~])?")
# RFC 9651 section 3.3.3, as the IETF draft (section 2.1) has it: printable ASCII, only \" and \\ escaped.
_QUOTED = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')
# An item of RFC 9651 (section 4.2.3) that is a string. Nothing defines its parameters, so they do not count.
_VALUE = (
    r"-?\d{1,12}\.\d{1,3}|-?\d{1,15}|@-?\d{1,15}|\?[01]|:[A-Za-z0-9+/]*={0,2}:"
    r'|"(?:[ !#-\[\]-~]|\\["\\])*"|%"(?:[ !#-$&-~]|%[0-9a-f]{2})*"|[A-Za-z*][!#$%&\'*+\-.^_`|~:/0-9A-Za-z]*'
)
_ITEM = re.compile(rf"{_QUOTED.pattern}(?:; *[a-z*][a-z0-9_\-.*]*(?:=(?:{_VALUE}))?)*")
# Any visible ASCII with inner spaces; in a header no comma.
_OPAQUE = re.compile(r"[!-+\--~](?:[ -+\--~]*[!-+\--~])?")
_MEMBER = re.compile(r"[!-~](?:[ -~]*[!-~])?")
# A client's name stands before its key, with a space between.
_CLIENT = re.compile(r"[!-~]{1,128}")
# RFC 9110 section 5.6.7.
_IMF_FIXDATE = re.compile(r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT")
# A client may send anything: it is kept, searched and sent back.
_REQUEST_ID = re.compile(r"[!-~]{1,128}")


def parse_key(sent: object, profile: Profile) -> str:
    """Return the key in the value of a header, as a profile spells it.

    Raises `KeyMalformed`. With "either", `"k"` and `k` are one key. Official Stripe clients send unquoted keys that are
    not valid UUIDs: they are accepted.
    """
    text = str(sent)  # a test client, or a middleware, may set a UUID
    quoted: re.Match[str] | None = None
    match profile.spelling:
        case "quoted":
            quoted = _ITEM.fullmatch(text.strip(" "))
            return _fitting(quoted and re.sub(r"\\(.)", r"\1", quoted[1]), profile)
        case "bare":
            bare = _OPAQUE.fullmatch(text.strip(" \t"))
            return _fitting(bare and bare[0], profile)
    text = text.strip(" \t")
    if quoted := _QUOTED.fullmatch(text):
        return _fitting(re.sub(r"\\(.)", r"\1", quoted[1]), profile)
    return _fitting(text if _BARE.fullmatch(text) else None, profile)


def plain_key(sent: object, profile: Profile) -> str:
    """Return the key in a member of a body, or in a parameter. Raises `KeyMalformed`."""
    return _fitting(sent if isinstance(sent, str) and _MEMBER.fullmatch(sent) else None, profile)


def named_key(text: str, profile: Profile) -> str:
    """Return the key that an address names, as the client spells it or plain. Raises `KeyMalformed`."""
    if profile.carrier != "header":
        return plain_key(text, profile)
    return parse_key(text, replace(profile, spelling="either") if profile.spelling == "quoted" else profile)


def _fitting(key: str | None, profile: Profile) -> str:
    if not key or len(key) > profile.max_length or (profile.pattern and not re.fullmatch(profile.pattern, key)):
        raise KeyMalformed("" if replace(profile, field=DEFAULT.field) == DEFAULT else _expectation(profile))
    return key


def formatted(key: str, policy: Policy) -> str:
    """Return a key in the one spelling of the policy's format. Raises `KeyMalformed`, `KeyExpired` and `KeyAhead`."""
    key_format = conf.field(policy, "key_format")
    if key_format == ANY:
        return key
    if key_format == ISSUED and not wing("issued_keys").is_issued(key):
        raise KeyMalformed(_must_be(key_format))
    ttl = seconds(conf.field(policy, "ttl"))
    match spelled(key, key_format, now=datetime.now(timezone.utc), ttl=ttl):
        case KeyFault.MALFORMED:
            raise KeyMalformed(_must_be(key_format))
        case KeyFault.EXPIRED:
            raise KeyExpired
        case KeyFault.AHEAD:
            raise KeyAhead
        case spelling:
            return spelling


def _must_be(key_format: str | re.Pattern[str]) -> str:
    return f"The idempotency key must be {described(key_format)}."


def _expectation(profile: Profile) -> str:
    quoted = " in double quotes" if profile.spelling == "quoted" else ""
    shape = f" that match {profile.pattern}" if profile.pattern else ""
    where = {"header": "the header", "body": "the member", "query": "the parameter"}[profile.carrier]
    return (
        f"The idempotency key is malformed. Send 1 to {profile.max_length} printable ASCII characters{quoted}{shape} in "
        f"{where} {profile.field}."
    )


def of_client(key: str, client: object, profile: Profile) -> str:
    """Return the key of a client that names itself: other clients of the same principal have other keys."""
    if " " in key:  # a space ends the client's name
        raise KeyMalformed(_expectation(profile))
    if client is None:
        return key
    if not _CLIENT.fullmatch(str(client)) or len(key) + len(str(client)) >= LONGEST:
        raise KeyMalformed(f"The header {profile.client_field} is malformed. Send 1 to 128 visible ASCII characters.")
    return f"{client} {key}"


def require_timely(first_sent: object, profile: Profile, now: datetime) -> None:
    """Refuse a request outside the window of its profile.

    Raises `KeyMalformed` for what is no date, `KeyExpired` and `KeyAhead`.
    """
    text = str(first_sent)
    try:
        if not _IMF_FIXDATE.fullmatch(text):
            raise ValueError(text)  # noqa: TRY301 - as parse_http_date() raises for a day that does not exist
        sent_at = parse_http_date(text)
    except ValueError as error:
        raise KeyMalformed(
            f"The header {profile.first_sent_field} is malformed. Send the time in GMT, such as "
            "Tue, 15 Nov 1994 08:12:31 GMT."
        ) from error
    age = now.timestamp() - sent_at
    if age > profile.window:
        raise KeyExpired
    if age < -profile.ahead:
        raise KeyAhead


def request_id_of(request: HttpRequest, policy: Resolved) -> str:
    """Return the id that the request came with; "" for none, and for what no header of ours may repeat."""
    sent = str(request.META.get(policy.request_id_header, ""))
    return sent if _REQUEST_ID.fullmatch(sent) else ""


async def user_of(request: HttpRequest, policy: Policy) -> Any:
    """Return the user that an async view finds: set on the request by a middleware, or else found by Django's own.

    A lazy user stays lazy: evaluating it may query a database, which is done in a thread. A policy that only observes
    does not even ask Django's: that reads the session.
    """
    user = getattr(request, "user", None)
    if conf.field(policy, "mode") == OBSERVE:
        return user
    if hasattr(request, "auser") and (user is None or isinstance(user, SimpleLazyObject)):
        found = await request.auser()
        return found if user is None or found.is_authenticated else user
    return user


def principal(user: Any) -> tuple[str, str | None] | None:
    """Name an authenticated user, as `user:<model>:<pk>` (of a proxy, its concrete model); `None` for any other.

    A database other than the default is named, too: user 1 of another database is another person.
    """
    if user is None or not getattr(user, "is_authenticated", False):
        return None
    pk = getattr(user, "pk", None)
    if pk is None:
        return None
    meta = getattr(user, "_meta", None)
    model = getattr(meta, "concrete_model", None)  # a proxy is the same person
    if model is None:
        kind = meta.label_lower if meta is not None else f"{type(user).__module__}.{type(user).__qualname__}"
        return f"user:{kind}:{pk}", None
    return f"user:{model._meta.label_lower}:{pk}", database_of(model, user)


def scope_of(request: HttpRequest, user: Any, policy: Policy, key: str) -> str | None:
    """Return the qualified scope of a key, or `None` when the request has no principal.

    It is the user's, or else what `policy.scope` names; the other way round for a `scopes.before_user`. Raises
    `KeyTooShort` for a guessable key that all clients share, `ConfigurationError` when `policy.scope` or `policy.realm`
    returns an invalid name.
    """
    if isinstance(policy.scope, Marked) and policy.scope.precedes_user:
        found = _by_name(request, policy) or _by_user(request, user, policy)
    else:
        found = _by_user(request, user, policy) or (None if policy.scope is None else _by_name(request, policy))
    if found is None and policy.anonymous == "shared":
        if len(key) < MIN_SHARED_KEY:
            raise KeyTooShort
        return qualified(ANONYMOUS, realm=realm_of(policy, request))
    return found


def _by_user(request: HttpRequest, user: Any, policy: Policy) -> str | None:
    if (found := principal(user)) is None:
        return None
    scope, database = found
    realm = None if policy.realm is None and SAID.get() is None else realm_of(policy, request)
    return qualified(scope, realm=realm, database=database)


def _by_name(request: HttpRequest, policy: Policy) -> str | None:
    if not (named := _named(policy, request)):
        return None
    scope, is_public = f"scope:{named}", isinstance(policy.scope, Marked) and policy.scope.is_public
    return qualified(scope if is_public else hashed(scope), realm=realm_of(policy, request))


def _named(policy: Policy, request: HttpRequest) -> str | None:
    named: Any = policy.scope(request) if policy.scope is not None else None
    if named is None or isinstance(named, str):
        return named
    raise ConfigurationError(f"Policy.scope must return text or None, not {type(named).__name__}.")
