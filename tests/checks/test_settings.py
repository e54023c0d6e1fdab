"""Common mistakes in IDEMPOTENCY: each becomes one check error, and none becomes a crash."""

from __future__ import annotations

import sys
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from pytest_django import Settings

from django_idempotency import LongestRun, OnTakeover, conf
from django_idempotency.checks.settings import check_environment, check_scope, check_settings
from django_idempotency.contrib.at_rest.encryption import _keyring
from django_idempotency.contrib.limits import Suspect
from django_idempotency.contrib.steps import UndoOn
from django_idempotency.core.dialects import Draft
from django_idempotency.engine.extensions import Extension
from django_idempotency.testing import override_idempotency
from tests.support.dialects import DIALECTS, changed

from .conftest import Configure, hints, said

#: An encryption key.
KEY = "x" * 43 + "="
ORM = "django_idempotency.stores.orm.ORMStore"
OUTSIDE = "tests.checks.backends.OutsideStore"

#: Setting, value, the error's code, and what its hint says to type.
MALFORMED = [
    # ---- unknown names
    ("TLL", 5, "E002", 'Type "TTL", if that is meant, or one of these: STORES, HEADER'),
    ("ttl", 5, "E002", 'Type "TTL"'),  # a field of Policy is in capitals here
    ("GUARANTY", "atomic", "E002", 'Type "GUARANTEE"'),
    ("STORAGE", {}, "E002", 'Type "STORE'),
    (7, 7, "E002", "or one of these: STORES, HEADER"),
    (None, 7, "E002", "or one of these: STORES, HEADER"),
    # ---- exemptions
    ("EXEMPT", "namespace:admin", "E068", '"EXEMPT": ["namespace:admin"'),
    ("EXEMPT", ["admin"], "E068", '"module:shop.webhooks"'),
    ("EXEMPT", ["function:no.such.thing"], "E068", '"path:/webhooks/"'),
    # ---- replays
    # ---- flags
    ("REQUIRED", "yes", "E003", '"REQUIRED": False'),
    ("REQUIRED", 1, "E003", "REQUIRED is True, False or"),
    ("BUFFER_STREAM", True, "E002", '"EXTENSIONS": ["django_idempotency.BufferedStreams"]'),
    ("STORE_BODY", False, "E002", '"EXTENSIONS": ["django_idempotency.StatusOnly"]'),
    ("UNDO_ON", [KeyError], "E002", '"EXTENSIONS": ["shop.options.UNDO_ON"], its dotted path'),
    ("on_takeover", print, "E002", '"EXTENSIONS": ["shop.options.ON_TAKEOVER"]'),
    ("REPLAY_THROUGH", [], "E002", '"AUTHORIZE_REPLAY": "shop.idempotency.authorize_replay"'),
    # ---- durations
    ("TTL", 0, "E003", '"TTL": 86400'),
    ("TTL", -1, "E003", '"TTL": 86400'),
    ("TTL", "1d", "E003", "a positive number of seconds"),
    ("TTL", None, "E003", '"TTL": 86400'),
    ("TTL", True, "E003", '"TTL": 86400'),
    ("TTL", float("nan"), "E003", '"TTL": 86400'),
    ("TTL", float("inf"), "E003", '"TTL": 86400'),
    ("TTL", Decimal(5), "E003", '"TTL": 86400'),
    ("TTL", timedelta(0), "E003", '"TTL": 86400'),
    ("TTL", timedelta.max, "E003", "at most ten years"),
    ("TTL", 10, "E087", "ttl=10): make lease shorter than ttl"),
    ("LEASE", [], "E003", '"LEASE": 30'),
    ("LEASE", 86400, "E087", "make lease shorter than ttl"),
    ("LEASE", timedelta(days=2), "E087", "make lease shorter than ttl"),
    ("CLAIM_LEASE", "1", "E003", '"CLAIM_LEASE": 1'),
    ("CLAIM_LEASE", 0, "E003", '"CLAIM_LEASE": 1'),
    ("CLAIM_LEASE", None, "E003", '"CLAIM_LEASE": 1'),
    ("CLAIM_LEASE", 86400, "E087", 'make "CLAIM_LEASE" (86400) shorter than ttl'),
    ("LIFETIME", "1d", "E003", '"LIFETIME": 86400'),
    ("LIFETIME", timedelta(minutes=1), "E003", "more than a minute"),
    ("WAIT", -5, "E003", '"WAIT": 0'),
    ("WAIT", {}, "E003", '"WAIT": 0'),
    # ---- one of a few words
    ("GUARANTEE", "exactly-once", "E003", '"atomic" or "lease"'),
    ("GUARANTEE", None, "E003", '"GUARANTEE": "atomic"'),
    ("GUARANTEE", ["atomic"], "E003", '"GUARANTEE": "atomic"'),
    ("ANONYMOUS", "allow", "E003", '"refuse" or "shared"'),
    ("ON_BUSY", "wait", "E002", 'in the settings "WAIT": 5.'),
    ("SEEN_FOR", 600, "E002", "extensions=[Tombstones(7 * 86400)]"),
    ("ON_FAILURE", False, "E003", '"free", "hold" or "forget"'),
    ("ON_STORE_FAILURE", "half", "E003", '"closed" or "open"'),
    # ---- functions, and dotted paths to them
    ("SCOPE", "tenant", "E003", "a function (or the dotted path of one) of the request"),
    ("SCOPE", "no.such.module", "E004", '"SCOPE": "shop.idempotency.scope"'),
    ("SCOPE", "tests.checks.backends.absent", "E004", '"SCOPE": "shop.idempotency.scope"'),
    ("SCOPE", ".", "E004", '"SCOPE": "shop.idempotency.scope"'),
    # Imported, but not a function.
    (
        "SCOPE",
        "testproject.settings.SECRET_KEY",
        "E003",
        '"SCOPE": None',
    ),
    ("FINGERPRINT", "body.[", "E043", '"FINGERPRINT": "body.order_id"'),
    ("FINGERPRINT", "body.a || shop.b", "E043", '"FINGERPRINT": "body.order_id"'),
    ("KEY", "order_id", "E003", '"KEY": None'),
    ("KEY", ["body.order_id"], "E003", "a function (or the dotted path of one) of the request"),
    ("KEY", "shop.keys.absent", "E004", '"KEY": "shop.idempotency.key"'),
    ("KEY", "[body.order_id, shop.id]", "E043", '"KEY": "body.order_id"'),
    ("KEY", "body.order_id)", "E043", '"KEY": "body.order_id"'),
    ("KEY", "nope(body)", "E043", '"KEY": "body.order_id"'),
    ("KEY", "tests.checks.backends.FOREIGN", "E043", '"KEY": "body.order_id"'),
    ("FINGERPRINT", "amount", "E003", '"FINGERPRINT": "request"'),
    ("FINGERPRINT", None, "E003", '"FINGERPRINT": "request"'),
    ("FINGERPRINT", "no.such", "E004", '"FINGERPRINT": "shop.idempotency.fingerprint"'),
    ("KEEP", "404", "E003", "a set of statuses below 500"),
    ("KEEP", {500}, "E003", '"KEEP": None'),
    ("KEEP", {"404"}, "E003", '"KEEP": None'),
    ("KEEP", 404, "E003", '"KEEP": None'),
    ("KEEP", "no.such", "E004", '"KEEP": "shop.idempotency.keep"'),
    ("HEADERS", "Location", "E003", "a list of header names"),
    ("HEADERS", [b"Location"], "E003", '"HEADERS": None'),
    ("HEADERS", "no.such", "E004", '"HEADERS": "shop.idempotency.headers"'),
    ("AUTHORIZE_REPLAY", True, "E003", '"AUTHORIZE_REPLAY": None'),
    (
        "AUTHORIZE_REPLAY",
        "no.such",
        "E004",
        '"AUTHORIZE_REPLAY": "shop.idempotency.authorize_replay"',
    ),
    # ---- numbers and names
    ("MAX_BODY", -1, "E003", '"MAX_BODY": None'),
    ("MAX_REQUEST_BODY", -1, "E003", '"MAX_REQUEST_BODY": 33554432'),
    ("MAX_BODY", 1.5, "E003", "a number of bytes"),
    ("MAX_BODY", "64k", "E003", '"MAX_BODY": None'),
    ("METHODS", "POST", "E003", "a list of unsafe methods"),
    ("METHODS", ["GET", "POST"], "E003", "a list of unsafe methods"),
    ("METHODS", None, "E003", '"METHODS": ("POST", "PUT", "PATCH", "DELETE")'),
    # ---- HTTP
    ("HEADER", "", "E003", '"HEADER": "Idempotency-Key"'),
    ("HEADER", None, "E003", '"HEADER": "Idempotency-Key"'),
    ("HEADER", 5, "E003", '"HEADER": "Idempotency-Key"'),
    ("HEADER", "Idempotency Key", "E003", '"HEADER": "Idempotency-Key"'),
    # Servers drop underscores.
    (
        "HEADER",
        "HTTP_IDEMPOTENCY_KEY",
        "E003",
        "letters, digits and hyphens",
    ),
    ("HEADER", "Key:", "E003", '"HEADER": "Idempotency-Key"'),
    ("HEADER", "X-Key\r\nX-Evil: 1", "E003", '"HEADER": "Idempotency-Key"'),
    ("HEADER", "Authorization", "E003", "that HTTP itself does not use"),  # would store a secret
    ("HEADER", "content-type", "E003", "that HTTP itself does not use"),  # no HTTP_… in WSGI
    ("PROFILE", "strpe", "E003", '"stripe"'),
    ("PROFILE", "shop.dialects.Ours", "E004", '"PROFILE": '),
    ("PROFILE", {"field": "X-Key"}, "E003", "or a Dialect"),
    ("REQUEST_ID_HEADER", "X Request", "E003", "None, or the name of a header"),
    # A session's id would be stored.
    (
        "REQUEST_ID_HEADER",
        "Cookie",
        "E003",
        "that HTTP itself does not use",
    ),
    ("REQUEST_ID_HEADER", 5, "E003", '"REQUEST_ID_HEADER": "X-Request-ID"'),
    ("PROBLEM_DOCS", "", "E003", "PROBLEM_DOCS is None, or the URL of a page"),
    ("PROBLEM_DOCS", 5, "E003", '"PROBLEM_DOCS": None'),
    # Relative to each route of the API.
    (
        "PROBLEM_DOCS",
        "problems/",
        "E003",
        '"PROBLEM_DOCS": None',
    ),
    ("PROBLEM_DOCS", "urn:shop:problem:", "E003", '"PROBLEM_DOCS": None'),  # not a page
    ("PROBLEM_DOCS", "https://", "E003", '"PROBLEM_DOCS": None'),
    # Not a path from the root.
    (
        "PROBLEM_DOCS",
        "//elsewhere.example/",
        "E003",
        '"PROBLEM_DOCS": None',
    ),
    ("PROBLEM_DOCS", "https://a.example/#top", "E003", "without a fragment"),
    ("PROBLEM_DOCS", "https://a.example/ b", "E003", '"PROBLEM_DOCS": None'),
    ("PROBLEM_DOCS", "https://a.example/>; rel=x\r\nX: 1", "E003", '"PROBLEM_DOCS": None'),
    # ---- metrics
    ("METRICS", 5, "E090", "PrometheusMeter"),
    ("METRICS", "prometeus", "E090", "PrometheusMeter"),
    ("METRICS", ["prometheus", 5], "E090", "PrometheusMeter"),
    ("METRICS", "tests.checks.backends.not_a_store", "E090", "subclass of Meter"),
    # ---- keys
    ("ENCRYPTION_KEYS", "c2VjcmV0", "E098", "python -c"),
    ("ENCRYPTION_KEYS", [b"c2VjcmV0"], "E098", "32 bytes in base64"),
    ("ENCRYPTION_KEYS", ["c2VjcmV0"], "E098", "token_bytes(32)"),
    ("ENCRYPTION_KEYS", ["no base64!"], "E098", "token_bytes(32)"),
    ("ENCRYPTION_KEYS", [KEY, None], "E098", "token_bytes(32)"),
    ("ENCRYPTION_KEYS", [KEY, KEY], "E098", "token_bytes(32)"),
    ("HASH_KEYS", "yes", "E003", '"HASH_KEYS": False'),
    ("COUNT_REPLAYS", 1, "E003", '"COUNT_REPLAYS": False'),
    # ---- secrets
    ("DERIVE_SECRET", "", "E003", 'os.environ["DERIVE_SECRET"]'),
    ("DERIVE_SECRET", "s", "E003", "at least 16 characters"),
    ("DERIVE_SECRET", b"fifteen bytes..", "E003", "at least 16 characters"),
    ("DERIVE_SECRET", 12345, "E003", 'os.environ["DERIVE_SECRET"]'),
    ("DERIVE_SECRET", ["swordfish"], "E003", 'os.environ["DERIVE_SECRET"]'),
    # A secret for each letter.
    (
        "DERIVE_SECRET_FALLBACKS",
        "swordfish",
        "E003",
        '"DERIVE_SECRET_FALLBACKS": [',
    ),
    ("DERIVE_SECRET_FALLBACKS", None, "E003", '"DERIVE_SECRET_FALLBACKS": ['),
    ("DERIVE_SECRET_FALLBACKS", [""], "E003", '"DERIVE_SECRET_FALLBACKS": ['),
    ("DERIVE_SECRET_FALLBACKS", ["good", None], "E003", '"DERIVE_SECRET_FALLBACKS": ['),
    # ---- stores
    ("STORES", None, "E010", f'"BACKEND": "{ORM}"'),
    ("STORES", [], "E010", f'"BACKEND": "{ORM}"'),
    ("STORES", ORM, "E010", f'"BACKEND": "{ORM}"'),
    *(
        ("STORES", {"default": entry}, "E012", "what that takes: ")
        for entry in (
            ORM,
            None,
            {},
            {"BACKEND": 5},
            {"BACKEND": ORM, "OPTION": {}},
            {"BACKEND": ORM, "OPTIONS": None},
            {"BACKEND": ORM, "OPTIONS": {1: 2}},
            {"BACKEND": ORM, "OPTIONS": {"alias": "x"}},
            {"BACKEND": "ORMStore"},
            {"BACKEND": "no.such.Store"},
            {"BACKEND": "tests.checks.backends.NoStore"},
            {"BACKEND": "tests.checks.backends.not_a_store"},
        )
    ),
    # Abstract.
    (
        "STORES",
        {"default": {"BACKEND": "django_idempotency.stores.base.BaseStore"}},
        "E012",
        "what that takes: nothing",
    ),
    (
        "STORES",
        {"default": {"BACKEND": "tests.checks.backends.FailingStore"}},
        "E012",
        "what that takes: nothing",
    ),
    ("STORES", {}, "E087", "It has none. Type one of these, or add it."),
    ("STORES", {"records": {"BACKEND": ORM}}, "E087", "It has 'records'. Type one"),
    (
        "STORES",
        {"default": {"BACKEND": ORM, "OPTIONS": {"using": "defualt"}}},
        "E014",
        '{"using": "default"}',
    ),
    (
        "STORES",
        {"default": {"BACKEND": ORM, "OPTIONS": {"using": 5}}},
        "E014",
        '{"using": "default"}',
    ),
    (
        "STORES",
        {"default": {"BACKEND": ORM, "OPTIONS": {"using": None}}},
        "E014",
        '{"using": "default"}',
    ),
    (
        "STORES",
        {"default": {"BACKEND": ORM, "OPTIONS": {"using": ["default"]}}},
        "E014",
        '{"using": "default"}',
    ),
    (
        "STORES",
        {"default": {"BACKEND": OUTSIDE}},
        "E087",
        "not rolled back, and the retry writes it again",
    ),
    ("STORE", "redis", "E087", "It has 'default'. Type one"),
    ("STORE", None, "E003", '"STORE": "default"'),
    ("STORE", "", "E003", '"STORE": "default"'),
    ("STORE", ["default"], "E003", '"STORE": "default"'),
]

REFUSING = Suspect("body.card", refuse=True)


@pytest.mark.parametrize(("name", "value", "code", "typed"), MALFORMED)
def test_a_malformed_setting_is_an_error(
    settings: Settings, name: Any, value: Any, code: str, typed: str
) -> None:
    """One error, whose hint says what to type.

    No check crashes on what another reports, --deploy included.
    """
    settings.IDEMPOTENCY = {name: value}
    found = (said if code in ("E087", "E098") else hints)(check_settings())
    assert list(found) == [code]
    assert typed in found[code]
    everything = checks.run_checks(tags=["idempotency"], include_deployment_checks=True)
    assert [message.id for message in everything] == [f"django_idempotency.{code}"]


@pytest.mark.parametrize("value", [[], "", 0, "TTL", 5, {"TTL"}, [("TTL", 5)], dict])
def test_idempotency_is_a_dict(settings: Settings, value: Any) -> None:
    """E001 alone; code that still reads a setting gets the same message."""
    settings.IDEMPOTENCY = value
    found = hints(checks.run_checks(tags=["idempotency"], include_deployment_checks=True))
    assert list(found) == ["E001"]
    assert 'IDEMPOTENCY = {"TTL": 86400}' in found["E001"]
    with pytest.raises(ImproperlyConfigured, match="IDEMPOTENCY is a dict"):
        conf.get("TTL")


def test_several_mistakes_are_reported_at_once(configure: Configure) -> None:
    """All mistakes are reported at once, so that they can be fixed in one go."""
    configure(TTL="1d", HEADER="", LEASES=5)
    assert hints(check_settings()).keys() == {"E002", "E003"}


def test_a_secret_is_never_shown(configure: Configure) -> None:
    """Neither a secret nor any part of it is shown."""
    configure(DERIVE_SECRET=["swordfish"], DERIVE_SECRET_FALLBACKS="swordfish")
    assert "swordfish" not in "".join(map(str, check_settings()))


def test_a_long_value_is_shortened(configure: Configure) -> None:
    """A message fits a terminal, whatever was typed."""
    configure(GUARANTEE="x" * 10_000, KEEP=object())
    assert all(len(message.msg) < 300 for message in check_settings())


def test_a_database_of_another_kind_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """E015 names the supported databases, and connects to none."""
    monkeypatch.setattr(connections["default"], "vendor", "oracle")
    assert "PostgreSQL, MariaDB, MySQL or SQLite" in hints(check_settings())["E015"]


def test_the_environment_switches_it_on_or_off(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    """E044 reports it at the start, whatever else is wrong; a test that overrides the switch does
    not hide it.
    """
    monkeypatch.setenv("IDEMPOTENCY_DISABLED", "maybe")
    with override_idempotency(enabled=True):
        assert "Type IDEMPOTENCY_DISABLED=1" in hints(check_settings())["E044"]
    settings.IDEMPOTENCY = []
    assert list(hints(check_settings())) == ["E044", "E001"]
    monkeypatch.setenv("IDEMPOTENCY_DISABLED", "Yes")
    assert list(hints(check_settings())) == ["E001"]


@pytest.mark.parametrize(("raw", "ids"), [("yes", ["W059"]), ("no", []), ("", []), ("maybe", [])])
def test_a_deployment_is_switched_on(
    monkeypatch: pytest.MonkeyPatch, raw: str, ids: list[str]
) -> None:
    """W059 for a deployment with the environment of the tests."""
    monkeypatch.setenv("IDEMPOTENCY_DISABLED", raw)
    assert list(hints(check_environment())) == ids


@pytest.mark.parametrize("key", ["body.order_id", str])
def test_a_selected_key_with_a_shared_scope(configure: Configure, key: Any) -> None:
    """E087: anyone who guesses the payload would get the response."""
    configure(KEY=key, ANONYMOUS="shared")
    assert "Identify the client: scope=…" in said(check_settings())["E087"]


@pytest.mark.parametrize("option", [LongestRun(600), OnTakeover(print), UndoOn(LookupError)])
def test_an_option_for_policies_with_a_lease(configure: Configure, option: Any) -> None:
    """The settings mean it for those, as LEASE, whichever GUARANTEE is the default."""
    for guarantee in ("atomic", "lease"):
        configure(EXTENSIONS=[option], GUARANTEE=guarantee)
        assert not check_settings()


def test_a_longest_run_that_no_policy_with_a_lease_can_have(configure: Configure) -> None:
    """E087, under the other guarantee, too."""
    configure(EXTENSIONS=[LongestRun(5)])
    assert "make LongestRun longer than lease" in said(check_settings())["E087"]


class Setting(Extension):
    """Sets what no extension may."""

    def __init__(self, term: str) -> None:
        self.terms = {term: True}


@pytest.mark.parametrize("term", ["required", "nonsense"])
def test_an_extension_that_sets_what_it_may_not(configure: Configure, term: str) -> None:
    """E087 says what it may set."""
    configure(EXTENSIONS=[Setting(term)])
    assert f"sets {term}. What it may set is store_body" in said(check_settings())["E087"]


def test_an_expression_that_is_none(configure: Configure) -> None:
    """E043."""
    configure(KEY="body.[card")
    assert list(hints(check_settings())) == ["E043"]


def test_strangers_are_not_shown_to_each_other(configure: Configure) -> None:
    """E087: a refusal names the other's request."""
    configure(ANONYMOUS="shared", EXTENSIONS=[f"{__name__}.REFUSING"])
    assert "refuse=False" in said(check_settings())["E087"]


@pytest.mark.parametrize(
    "value", ["shop.FLOODS", ["shop.FLOODS"], [f"{__name__}.Configure"], 5, [Settings]]
)
def test_extensions_that_are_none(configure: Configure, value: Any) -> None:
    """It is said which entry cannot be imported, or is none."""
    configure(EXTENSIONS=value)
    assert hints(check_settings())


def test_the_cache_of_facts(configure: Configure) -> None:
    """E003: it is an alias of CACHES."""
    configure(CACHE="defualt")
    assert '"CACHE": "default"' in hints(check_settings())["E003"]


def test_a_profile_and_the_other_settings(configure: Configure) -> None:
    """E087 names the contradiction."""
    configure(PROFILE=DIALECTS["repeatability"], TTL=3600)
    assert "make ttl (3600) at least" in said(check_settings())["E087"]
    configure(PROFILE=DIALECTS["aip155"], KEY_FORMAT="uuid7")
    assert "E087" in hints(check_settings())


#: Valid settings, one line for each thing that may be typed.
WELL_FORMED: list[dict[str, Any]] = [
    {},
    {"STORES": {"default": {"BACKEND": ORM, "OPTIONS": {"using": "default"}}}},
    {"STORES": {"default": {"BACKEND": ORM}}},
    {"STORES": {"default": {"BACKEND": OUTSIDE, "OPTIONS": {"url": "x"}}}, "GUARANTEE": "lease"},
    {"STORES": {"a": {"BACKEND": ORM}, "b": {"BACKEND": OUTSIDE}}, "STORE": "a"},
    {
        "TTL": timedelta(days=1),
        "LEASE": timedelta(seconds=30),
        "CLAIM_LEASE": timedelta(seconds=1),
        "WAIT": 2.5,
    },
    {"HEADER": "X-Request-Id", "PROBLEM_DOCS": "/help/idempotency/"},
    {"PROBLEM_DOCS": "https://api.example.com/problems/?lang=en"},
    {"PROBLEM_DOCS": None},
    {"DERIVE_SECRET": b"\x00\xff" * 8, "DERIVE_SECRET_FALLBACKS": ("old", b"older")},
    {
        "SCOPE": "builtins.repr",
        "FINGERPRINT": "raw",
        "KEEP": {404},
        "HEADERS": ["Location"],
    },
    {
        "SCOPE": lambda request: None,
        "KEEP": lambda response: None,
        "AUTHORIZE_REPLAY": lambda request, outcome: True,
    },
    {
        "REQUIRED": True,
        "ANONYMOUS": "shared",
        "WAIT": 5,
        "ON_FAILURE": "hold",
        "ON_STORE_FAILURE": "open",
    },
    {"METHODS": {"POST"}, "MAX_BODY": 0, "EXTENSIONS": ["django_idempotency.BufferedStreams"]},
    {"PROFILE": "stripe"},
    {"PROFILE": changed(Draft, max_length=64)},
    {"PROFILE": "django_idempotency.contrib.dialects.Square"},
    {"PROFILE": "default", "HEADER": "X-Key"},
    {"KEY": "[user, body.order_id]", "FINGERPRINT": "body.amount"},
    {"KEY": "builtins.repr", "FINGERPRINT": 'headers."content-digest"'},
    {"KEY": lambda request: request.path, "FINGERPRINT": "from_json(body.order).amount"},
]


@pytest.mark.parametrize("declared", WELL_FORMED)
def test_what_is_right_is_silent(settings: Settings, declared: dict[str, Any]) -> None:
    """Valid settings raise no finding and no error."""
    settings.IDEMPOTENCY = declared
    assert check_settings() == []


@pytest.mark.parametrize("declared", [None, {}])
def test_no_settings_are_needed(settings: Settings, declared: Any) -> None:
    """Every setting has a default."""
    settings.IDEMPOTENCY = declared
    assert check_settings() == []
    del settings.IDEMPOTENCY
    assert check_settings() == []


def test_no_cryptography(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    """E098: the keys are there, and the library is not."""
    configure(ENCRYPTION_KEYS=[KEY])
    _keyring.cache_clear()
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    assert "django-idempotency[encryption]" in said(check_settings())["E098"]


@pytest.mark.parametrize("keys", [None, "", {}])
def test_keys_that_are_none(configure: Configure, keys: Any) -> None:
    """E098: a variable of the environment that is missing leaves nothing in plain text."""
    configure(ENCRYPTION_KEYS=keys)
    assert "not a list" in said(check_settings())["E098"]


@pytest.mark.parametrize(
    ("given", "fix"),
    [
        ({"SESSION_ENGINE": "django.contrib.sessions.backends.signed_cookies"}, "SESSION_ENGINE ="),
        ({"MIDDLEWARE": []}, "MIDDLEWARE"),
    ],
)
def test_guests_without_sessions(
    configure: Configure, settings: Settings, given: dict[str, Any], fix: str
) -> None:
    """E064: every guest would have no name, or another one at each request."""
    configure(SCOPE="django_idempotency.scopes.session")
    assert check_scope() == []
    for name, value in given.items():
        setattr(settings, name, value)
    assert fix in hints(check_scope())["E064"]


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("IDEMPOTENCY_REQUIRED", True, 'IDEMPOTENCY = {"REQUIRED": …}'),
        ("IDEMPOTENCY_TTL", 5, 'IDEMPOTENCY = {"TTL": …}'),
        ("IDEMPOTENCY_EXEMPTS", [], 'IDEMPOTENCY = {"EXEMPT": …}'),
        ("IDEMPOTENCY_STORES", {"default": {}}, 'IDEMPOTENCY = {"STORES": …}'),
        (
            "IDEMPOTENCY_SETTINGS",
            {"REQUIRED": True, "TTL": 5},
            'IDEMPOTENCY = {"REQUIRED": …, "TTL": …}',
        ),
        ("DJANGO_IDEMPOTENCY", {"SCOPE": "x"}, 'IDEMPOTENCY = {"SCOPE": …}'),
        ("IDEMPOTENT", {"SCOPE": "x"}, 'IDEMPOTENCY = {"SCOPE": …}'),
        ("IDEMPOTENCY_REDIS_HOST", "cache", None),  # the project's own
        ("IDEMPOTENCY_LIMITS", {"daily": 5}, None),
        ("REQUIRED", True, None),
    ],
)
def test_a_setting_beside_the_dict(
    settings: Settings, name: str, value: Any, says: str | None
) -> None:
    """A setting that is meant for IDEMPOTENCY and stands beside it is an error: nobody reads it."""
    setattr(settings, name, value)
    found = hints(check_settings())
    assert list(found) == ([] if says is None else ["E005"])
    assert says is None or says in found["E005"]
