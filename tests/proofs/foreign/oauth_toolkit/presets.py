"""Values of OAUTH2_PROVIDER, under the names that the tests use."""

from __future__ import annotations

from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa


def private_key() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


Preset = dict[str, Any]

DEFAULT_SCOPES_RW: Preset = {"DEFAULT_SCOPES": ["read", "write"]}
DEFAULT_SCOPES_RO: Preset = {"DEFAULT_SCOPES": ["read"]}

OIDC_SETTINGS_RW: Preset = {
    "OIDC_ENABLED": True,
    "OIDC_ISS_ENDPOINT": "http://localhost/o",
    "OIDC_USERINFO_ENDPOINT": "http://localhost/o/userinfo/",
    "OIDC_RSA_PRIVATE_KEY": private_key(),
    "OIDC_RSA_PRIVATE_KEYS_INACTIVE": [private_key(), private_key()],
    "SCOPES": {"read": "Reading scope", "write": "Writing scope", "openid": "OpenID connect"},
    "DEFAULT_SCOPES": ["read", "write"],
    "PKCE_REQUIRED": False,
    "REFRESH_TOKEN_GRACE_PERIOD_SECONDS": 0,
}
OIDC_SETTINGS_RO: Preset = {**OIDC_SETTINGS_RW, "DEFAULT_SCOPES": ["read"]}
OIDC_SETTINGS_RP_REGISTRATION: Preset = {
    **OIDC_SETTINGS_RW,
    "OIDC_RP_INITIATED_REGISTRATION_ENABLED": True,
    "OIDC_RP_INITIATED_REGISTRATION_URL": "/accounts/signup/",
}
OIDC_SETTINGS_RP_LOGOUT: Preset = {
    **OIDC_SETTINGS_RW,
    "OIDC_RP_INITIATED_LOGOUT_ENABLED": True,
    "OIDC_RP_INITIATED_LOGOUT_ALWAYS_PROMPT": False,
}
OIDC_SETTINGS_RP_LOGOUT_STRICT_REDIRECT_URI: Preset = {
    **OIDC_SETTINGS_RP_LOGOUT,
    "OIDC_RP_INITIATED_LOGOUT_STRICT_REDIRECT_URIS": True,
}
OIDC_SETTINGS_RP_LOGOUT_DENY_EXPIRED: Preset = {
    **OIDC_SETTINGS_RP_LOGOUT,
    "OIDC_RP_INITIATED_LOGOUT_ACCEPT_EXPIRED_TOKENS": False,
}
OIDC_SETTINGS_RP_LOGOUT_KEEP_TOKENS: Preset = {
    **OIDC_SETTINGS_RP_LOGOUT,
    "OIDC_RP_INITIATED_LOGOUT_DELETE_TOKENS": False,
}

INTROSPECTION_SETTINGS: Preset = {
    "SCOPES": {
        "read": "Read scope",
        "write": "Write scope",
        "introspection": "Introspection scope",
        "dolphin": "eek",
    },
    "RESOURCE_SERVER_INTROSPECTION_URL": "http://example.org/introspection",
    "READ_SCOPE": "read",
    "WRITE_SCOPE": "write",
}
REST_FRAMEWORK_SCOPES: Preset = {
    "SCOPES": {
        "read": "Read scope",
        "write": "Write scope",
        "scope1": "Scope 1",
        "scope2": "Scope 2",
        "resource1": "Resource 1",
    }
}
DCR_SETTINGS: Preset = {
    "DCR_ENABLED": True,
    "SCOPES": {"read": "Read scope", "write": "Write scope"},
}
ALLOWED_SCHEMES_DEFAULT: Preset = {"ALLOWED_SCHEMES": ["https"]}
ALLOWED_SCHEMES_HTTP: Preset = {"ALLOWED_SCHEMES": ["https", "http"]}
