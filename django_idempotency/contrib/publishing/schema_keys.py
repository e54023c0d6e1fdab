"""Where OpenAPI shows the key of a guarded operation: as a parameter, or as a member of the body."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ...core.profiles import DEFAULT, Profile

#: `refer(kind, name, component)` keeps a component under "#/components/<kind>/<name>", and returns a reference to it.
Refer = Callable[[str, str, dict[str, Any]], dict[str, Any]]

#: The version of a UUID → one.
_EXAMPLES = {4: "8e03978e-40d5-43e8-bc93-6894a57f9324", 7: "019a9d3c-7c00-7e8d-bc93-6894a57f9324"}
_TEXT = {"type": "string"}
# What `http.keys` reads, for the validators of clients and gateways. A header has no comma outside quotes.
_PLAIN = "^[!-~]([ -~]*[!-~])?$"
_BARE = r"[!-+\x2D-~]([ -+\x2D-~]*[!-+\x2D-~])?"
_UNQUOTED = r"[!#-+\x2D-~]([ !#-+\x2D-~]*[!#-+\x2D-~])?"
_QUOTED = r'"([ !#-\[\]-~]|\\["\\])+"'
_MEANING = "Makes the request safe to repeat: send a new key with each operation, and the same one with its retries."


def parameters(
    known: list[dict[str, Any]], terms: dict[str, Any], profile: Profile, refer: Refer
) -> list[dict[str, Any]]:
    """Return the parameters of an operation with the key, if it is one. `terms` are what is published of the policy."""
    carrier = terms["carrier"]
    named = {(each.get("in"), str(each.get("name", "")).lower()) for each in known}
    if carrier["in"] == "body" or (carrier["in"], carrier["name"].lower()) in named:
        return known
    required = _is_required(terms)
    key = {
        "in": carrier["in"],
        "name": carrier["name"],
        "required": required,
        "description": _MEANING,
        "schema": _schema(terms, profile),
    }
    quoted = carrier.get("spelling") == "quoted"
    version = terms["format"].get("x-uuid-version")
    example = _EXAMPLES.get(version, _EXAMPLES[4])
    if re.search(terms["format"].get("pattern", ""), example):  # otherwise only the project knows one
        key["example"] = f'"{example}"' if quoted else example
    kind = f"UUID{version or ''}" if "format" in terms["format"] else "Long" if terms["format"]["minLength"] > 1 else ""
    name = f"{'Required' if required else ''}{kind}{_prefix(profile)}IdempotencyKey"
    # The next route may have another pattern, so a component of this name would not be shared.
    found = [*known, key if "pattern" in terms["format"] else refer("parameters", name, key)]
    if profile.first_sent_field is not None:
        sent = {
            "in": "header",
            "name": profile.first_sent_field,
            "required": required,
            "description": f"When the client first sent this request: it comes with every {profile.field}.",
            "schema": _TEXT,
            "example": "Tue, 15 Nov 1994 08:12:31 GMT",
        }
        name = f"{'Required' if required else ''}{_prefix(profile)}FirstSent"
        found.append(refer("parameters", name, sent))
    return found


def _schema(terms: dict[str, Any], profile: Profile) -> dict[str, Any]:
    """Return the schema of a parameter: of what is sent, which in quotes is longer than the key."""
    wanted = terms["format"]
    if profile.carrier == "query":
        return {**_TEXT, "pattern": _PLAIN, **wanted}
    if profile.spelling == "quoted":
        return {**_TEXT, "pattern": f"^{_QUOTED}$"}
    if "format" in wanted:
        return {**_TEXT, **wanted}
    spelled = _BARE if profile.spelling == "bare" else _UNQUOTED
    if profile.spelling == "either" and wanted["minLength"] == 1:
        spelled = f"({spelled}|{_QUOTED})"
    return {**_TEXT, "pattern": f"^{spelled}$", **wanted}


def body(operation: dict[str, Any], terms: dict[str, Any]) -> dict[str, Any]:
    """Return `requestBody` with the key as a member, if it is one; else nothing."""
    known, name = operation.get("requestBody", {}), terms["carrier"]["name"]
    if terms["carrier"]["in"] != "body" or not known.get("content"):
        return {}
    required = [name] if _is_required(terms) else []
    key = {"description": _MEANING, **_TEXT, "pattern": _PLAIN, **terms["format"]}
    content = {
        kind: {**media, "schema": _with(media.get("schema", {}), name, key, required)}
        for kind, media in known["content"].items()
    }
    return {"requestBody": {**known, "content": content}}


def _with(schema: dict[str, Any], name: str, member: dict[str, Any], required: list[str]) -> dict[str, Any]:
    """Return the schema of an object with one member more. One that it has itself stays."""
    known = schema.get("properties", {})
    if name in known:
        return schema
    if known:
        return {
            **schema,
            "properties": {**known, name: member},
            **({"required": [*schema.get("required", []), *required]} if required else {}),
        }
    more = {"type": "object", "properties": {name: member}, **({"required": required} if required else {})}
    return {"allOf": [schema, more]} if schema else more


def _is_required(terms: dict[str, Any]) -> bool:
    return bool(terms.get("required") and not terms["derived"])


def _prefix(profile: Profile) -> str:
    """Return what distinguishes a profile's components from those of the default one."""
    return "" if profile.name == DEFAULT.name else "".join(filter(str.isalnum, profile.name.title()))
