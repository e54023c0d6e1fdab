"""The key of a request, as a profile and a policy's format spell it."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timezone

from .. import conf
from ..core.key_formats import ANY, ISSUED, KeyFault, described, spelled
from ..core.policy import Policy, seconds
from ..core.profiles import DEFAULT, Profile
from ..errors import KeyAhead, KeyExpired, KeyMalformed
from ..runtime.wings import wing

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
        case "opaque":
            return plain_key(text.strip(" \t"), profile)
        case "bare":
            bare = _OPAQUE.fullmatch(text.strip(" \t"))
            return _fitting(bare and bare[0], profile)
    text = text.strip(" \t")
    if quoted := _QUOTED.fullmatch(text):
        return _fitting(re.sub(r"\\(.)", r"\1", quoted[1]), profile)
    return _fitting(text if _BARE.fullmatch(text) else None, profile)


def plain_key(sent: object, profile: Profile) -> str:
    """Return a key that may hold any printable ASCII, as in a member of a body or in a parameter. Raises `KeyMalformed`."""
    return _fitting(sent if isinstance(sent, str) and _MEMBER.fullmatch(sent) else None, profile)


def _fitting(key: str | None, profile: Profile) -> str:
    if not key or len(key) > profile.max_length or (profile.pattern and not re.fullmatch(profile.pattern, key)):
        raise KeyMalformed("" if replace(profile, field=DEFAULT.field) == DEFAULT else expectation(profile))
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


def expectation(profile: Profile) -> str:
    """Say what a key must be, which one is not."""
    quoted = " in double quotes" if profile.spelling == "quoted" else ""
    shape = f" that match {profile.pattern}" if profile.pattern else ""
    where = {"header": "the header", "body": "the member", "query": "the parameter"}[profile.carrier]
    return (
        f"The idempotency key is malformed. Send 1 to {profile.max_length} printable ASCII characters{quoted}{shape} in "
        f"{where} {profile.field}."
    )
