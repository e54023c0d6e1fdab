"""What a request and its replay say on the wire in some profiles only: whose key it is, how old it
is, that it is a replay.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.utils.http import parse_http_date

from ...conf import meta_name
from ...core.profiles import LONGEST, Profile
from ...core.records import Outcome
from ...errors import KeyAhead, KeyExpired, KeyMalformed
from ...http.bodies import is_json
from ...http.plan import expectation, parse_key, plain_key

# A client's name stands before its key, with a space between.
_CLIENT = re.compile(r"[!-~]{1,128}")
# RFC 9110 section 5.6.7.
_IMF_FIXDATE = re.compile(
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT"
)


def named_key(text: str, profile: Profile) -> str:
    """Return the key that an address names, as the client spells it or plain.

    Raises `KeyMalformed`.
    """
    if profile.carrier != "header":
        return plain_key(text, profile)
    return parse_key(
        text, replace(profile, spelling="either") if profile.spelling == "quoted" else profile
    )


def of_client(key: str, client: object, profile: Profile) -> str:
    """Return the key of a client that names itself: other clients of the same principal have other
    keys.
    """
    if " " in key:  # a space ends the client's name
        raise KeyMalformed(expectation(profile))
    if client is None:
        return key
    if not _CLIENT.fullmatch(str(client)) or len(key) + len(str(client)) >= LONGEST:
        raise KeyMalformed(
            f"The header {profile.client_field} is malformed. Send 1 to 128 visible ASCII "
            "characters."
        )
    return f"{client} {key}"


def of_endpoint(key: str, path: str) -> str:
    """Return the key of a request to a path (percent-encoded), where each path has keys of its
    own.
    """
    named = f"{path} {key}"  # the first space ends the path
    return (
        named if len(named) <= LONGEST else f"sha256:{hashlib.sha256(named.encode()).hexdigest()}"
    )


def require_timely(
    sent: object, meta: Mapping[str, Any], profile: Profile, *, now: datetime
) -> None:
    """Refuse a request outside the window of its profile. `sent` is its key; `None`: there is none.

    Raises `KeyMalformed` for what is not a date and for one header without the other, `KeyExpired`
    and `KeyAhead`.
    """
    assert profile.first_sent_field is not None, "the caller has looked"
    first_sent = meta.get(meta_name(profile.first_sent_field))
    if (sent is None) is not (first_sent is None):
        raise KeyMalformed(
            f"Send the headers {profile.field} and {profile.first_sent_field} together, or neither."
        )
    if first_sent is None:
        return
    text = str(first_sent)
    try:
        if not _IMF_FIXDATE.fullmatch(text):
            # As parse_http_date() raises for a day that does not exist.
            raise ValueError(text)  # noqa: TRY301
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


def marked(outcome: Outcome, member: str) -> bytes:
    """Return a stored body that says so in a member of its JSON object, and is the same otherwise;
    any other as it is.
    """
    body = outcome.body
    assert isinstance(body, bytes), "it is rebuilt"
    named = {name.lower(): value for name, value in outcome.headers}
    if "content-encoding" in named or not is_json(
        named.get("content-type", "").partition(";")[0].strip().lower()
    ):
        return body
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):  # of a body that is nested too deep to be read
        return body
    if not isinstance(found, dict):
        return body
    if member in found:  # as the first response says it
        return json.dumps({**found, member: True}).encode()
    comma = ", " if found else ""
    # Numbers stay as they are spelled.
    return b"%b%b}" % (
        body.rstrip()[:-1],
        f"{comma}{json.dumps(member)}: true".encode(),
    )
