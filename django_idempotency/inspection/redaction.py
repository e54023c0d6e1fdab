"""Masks secrets in displayed text, recognized by name or by format.

A stored response may hold a token or a card number. Everything that displays one passes through
here. Hiding too much is a nuisance, hiding too little is an incident; in doubt, this hides.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

MASK = "[redacted]"
#: The deepest indentation of a JSON line, in characters.
MARGIN = 40

#: Parts of a name, without its punctuation: `client_secret`, `clientSecret`, `X-Client-Secret`.
_PARTS = (
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "secret",
    "token",
    "credential",
    "authorization",
    "cookie",
    "apikey",
    "privatekey",
    "accesskey",
    "authkey",
    "signingkey",
    "encryptionkey",
    "sessionid",
    "sessionkey",
    "cardnumber",
    "cardno",
    "ccnumber",
    "accountnumber",
    "accountno",
    "routingnumber",
    "securitycode",
)
#: Whole words of a name: `pin` but not `shipping`.
_WORDS = frozenset(
    {"pin", "pan", "cvv", "cvc", "csc", "iban", "otp", "totp", "pwd", "ssn", "jwt", "csrf", "xsrf"}
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")

#: Secret headers whose names contain none of the above.
_HEADERS = frozenset(
    {"authentication-info", "www-authenticate", "proxy-authenticate", "x-auth", "x-session"}
)

_BEARER = re.compile(r"\b(Bearer|Basic)\s+[\w.~+/=-]{6,}", re.IGNORECASE)
#: A JSON web token, or its beginning: matched as a whole, since searching its end from each word
#: would be quadratic.
_TOKEN = re.compile(r"\beyJ[\w-]{8,}(\.[\w-]{8,}(?:\.[\w-]*)?)?")
#: Keys with a known prefix, a PEM block.
_TELLING = re.compile(
    r"\b(?:[sr]k_(?:live|test)_|whsec_|gh[pousr]_|github_pat_|xox[abprs]-|AKIA)[\w-]{8,}"
    r"|-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)",
    re.DOTALL,
)
#: name=value, name: value, "name": "value"; a string may have lost its end.
_PAIR = re.compile(
    r"""(?<![\w.-])([A-Za-z][\w.-]{0,63})(["']?\s{0,3}[=:]\s{0,3})("(?:\\.|[^"\\])*"?|'[^'\n]*'?|[^\s"'&;,<>]+)"""
)
_ELEMENT = re.compile(r"<([A-Za-z][\w:.-]{0,63})((?:\s[^<>]{0,500})?)>([^<>]+)</")
_INPUT = re.compile(r"<(?:input|meta)\s[^<>]{1,2000}>", re.IGNORECASE)
_NAMED = re.compile(r"""\bname\s*=\s*["']?([^\s"'>]+)""", re.IGNORECASE)
_VALUE = re.compile(r"""\b(value|content)(\s*=\s*)("[^"]*"|'[^']*'|[^\s>]+)""", re.IGNORECASE)
_DIGITS = re.compile(r"(?<![\w.])\d(?:[ -]?\d){12,18}(?!\w)")
_IBAN = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]){11,30}")


def secret_name(name: str) -> bool:
    """Does a field or a header of this name hold a secret?"""
    joined = "".join(filter(str.isalnum, name)).lower()
    return any(part in joined for part in _PARTS) or any(
        word.lower() in _WORDS for word in _WORD.findall(name)
    )


def headers(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return response headers, the secret ones masked.

    What is stored beside them has a colon in its name.
    """
    return [
        (
            _whole(name),
            MASK if name.lower() in _HEADERS or secret_name(name) else text(_whole(value)),
        )
        for name, value in pairs
        if not name.startswith(":")
    ]


def _whole(value: str) -> str:
    """Return a text in which half of a character, which no page can be encoded with, is written
    out.
    """
    return value.encode(errors="backslashreplace").decode()


def text(value: str) -> str:
    """Return a text with everything that looks like a secret, a card or a bank account masked."""
    value = _TOKEN.sub(lambda match: MASK if match[1] else match[0], value)
    value = _TELLING.sub(MASK, value)
    value = _BEARER.sub(rf"\1 {MASK}", value)
    value = _INPUT.sub(_input, value)
    value = _ELEMENT.sub(_element, value)
    value = _PAIR.sub(_pair, value)
    value = _IBAN.sub(_iban, value)
    return _DIGITS.sub(_card, value)


def _pair(match: re.Match[str]) -> str:
    name, joint, value = match.groups()
    quote = value[0] if value[0] in "\"'" else ""
    return (
        f"{name}{joint}{quote}{MASK}{quote}"
        if secret_name(name) and value.strip("\"'")
        else match[0]
    )


def _element(match: re.Match[str]) -> str:
    name, attributes, value = match.groups()
    return f"<{name}{attributes}>{MASK}</" if secret_name(name) and value.strip() else match[0]


def _input(match: re.Match[str]) -> str:
    named = _NAMED.search(match[0])
    return _VALUE.sub(rf'\1\2"{MASK}"', match[0]) if named and secret_name(named[1]) else match[0]


def _card(match: re.Match[str]) -> str:
    """Mask a number that passes the check of card numbers (Luhn); UnionPay's, which begin with 62,
    need not pass.
    """
    digits = [int(digit) for digit in match[0] if digit.isdigit()]
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    if (sum(digits[-1::-2]) + sum(doubled)) % 10 and digits[:2] != [6, 2]:
        return match[0]
    return "[redacted …{}{}{}{}]".format(*digits[-4:])


def _iban(match: re.Match[str]) -> str:
    """Mask a bank account (ISO 13616: the whole, turned, is 1 modulo 97); capitals may follow
    it.
    """
    for end in range(len(match[0]), 14, -1):
        compact = match[0][:end].replace(" ", "")
        if int("".join(str(int(sign, 36)) for sign in compact[4:] + compact[:4])) % 97 == 1:
            return f"{MASK}{match[0][end:]}"
    return match[0]


# --------------------------------------------------------------------------------------------- JSON


class _Number(str):
    """A number as it was written: as a float, distinct amounts would look the same."""

    __slots__ = ()


class _Pairs(list[tuple[str, Any]]):
    """An object with its duplicate names, which a dict would swallow."""


def json_text(value: str) -> str | None:
    """Return JSON, indented and masked, or `None` for text that is not JSON (or nested too deep to
    show).
    """
    try:
        parsed = json.loads(
            value,
            parse_float=_Number,
            parse_int=_Number,
            parse_constant=_Number,
            object_pairs_hook=_Pairs,
        )
        written: list[str] = []
        _render(parsed, "\n", written.append)
        return "".join(written)
    except (ValueError, RecursionError):
        return None


def _render(value: Any, margin: str, write: Callable[[str], None]) -> None:
    """Write a value, piece by piece: joined at each level, one that is nested deeply would be
    copied as often.
    """
    inner = margin + "  " if len(margin) < MARGIN else margin
    match value:
        case _Number():
            shown = text(value)
            write(str(value) if shown == value else _quoted(shown))
        case str():
            write(_quoted(text(value)))
        case _Pairs():
            for number, (name, held) in enumerate(value):
                write(f"{',' if number else '{'}{inner}{_quoted(text(name))}: ")
                if _hidden(name, held):
                    write(_quoted(MASK))
                else:
                    _render(held, inner, write)
            write(f"{margin}}}" if value else "{}")
        case list():
            for number, held in enumerate(value):
                write(f"{',' if number else '['}{inner}")
                _render(held, inner, write)
            write(f"{margin}]" if value else "[]")
        case _:
            write(json.dumps(value))  # null, true, false


def _hidden(name: str, value: Any) -> bool:
    """Is a member a secret? That one is empty, absent or a yes or no may be seen."""
    return secret_name(name) and value not in ("", None, []) and not isinstance(value, bool)


def _quoted(value: str) -> str:
    """Return a string as JSON."""
    return _whole(json.dumps(value, ensure_ascii=False))
