"""Each dialect on the wire, row by row: what is sent, what comes back, what is remembered."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import RequestFactory, override_settings
from django.utils.http import http_date
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_idempotency import OnReplay, Tombstones, idempotent
from django_idempotency.contrib.dialects import Repeatability
from django_idempotency.contrib.dialects.commerce import ADCP_EXCLUDED, adcp_replay
from django_idempotency.contrib.fingerprints.json import json_body
from django_idempotency.core.dialects import Dialect, Draft
from django_idempotency.core.records import Outcome
from django_idempotency.errors import KeyAhead, KeyExpired, KeyMalformed
from django_idempotency.http.responses import marked
from django_idempotency.runtime.registry import stores
from tests.support.dialects import DIALECTS

MEMORY = {
    "STORES": {"default": {"BACKEND": "django_idempotency.stores.memory.MemoryStore"}},
    "GUARANTEE": "lease",
}
NAMES = list(DIALECTS)
#: JSON that no parser of Python's reads.
DEEP = b"[" * 100_000 + b"]" * 100_000
FACTORY = RequestFactory()


@pytest.fixture(autouse=True)
def in_memory() -> Iterator[None]:
    with override_settings(IDEMPOTENCY=MEMORY):
        stores["default"]._records.clear()  # type: ignore[attr-defined]
        yield


def stored() -> int:
    return len(stores["default"]._records)  # type: ignore[attr-defined]


def new_key(profile: Dialect) -> str:
    """Return a key that the profile takes."""
    key = uuid4()
    if profile.name == "iceberg":
        key = UUID(int=key.int & ~(0xF << 76) | 7 << 76)
    return str(key)


class Api:
    """A guarded view in one dialect. It responds with `status`, and notes what ran."""

    def __init__(self, name: str, **fields: Any) -> None:
        self.profile = DIALECTS[name]
        self.status, self.ran = 201, 0
        if self.profile.requires_key:
            fields["required"] = True
        self.view = idempotent(profile=self.profile, scope=lambda request: "client", **fields)(
            self._view
        )
        self.meanwhile: Callable[[], HttpResponse] | None = None
        self.inside: HttpResponse | None = None

    def _view(self, request: HttpRequest) -> HttpResponse:
        self.ran += 1
        if self.meanwhile is not None:
            again, self.meanwhile = self.meanwhile, None
            self.inside = again()
        return JsonResponse({"run": self.ran}, status=self.status)

    def send(
        self, key: object = None, headers: Mapping[str, str] | None = None, *, amount: int = 1
    ) -> Any:
        """Send a request with a key where the profile has it; `None`: without one."""
        profile, body, headers = self.profile, {"amount": amount}, {**(headers or {})}
        if key is not None and profile.carrier == "body":
            body[profile.field] = key  # type: ignore[assignment]
        elif key is not None:
            headers[profile.field] = f'"{key}"' if profile.spelling == "quoted" else str(key)
            if profile.first_sent_field:
                headers.setdefault(profile.first_sent_field, http_date())
        return self.view(
            FACTORY.post("/", json.dumps(body), content_type="application/json", headers=headers)
        )


@pytest.fixture(params=NAMES)
def api(request: pytest.FixtureRequest) -> Api:
    return Api(request.param)


# ----------------------------------------------------------------------------- statuses and headers

#: missing, malformed, another request, still running; and a replay of 201.
STATUSES = {
    "default": (400, 400, 422, 409, 201),
    "draft": (400, 400, 422, 409, 201),
    "stripe": (400, 400, 400, 409, 201),
    "adyen": (400, 400, 422, 422, 201),
    "paypal": (400, 400, 422, 409, 200),
    "square": (400, 400, 400, 409, 201),
    "repeatability": (400, 400, 400, 409, 201),
    "aip155": (400, 400, 400, 409, 201),
    "zalando": (400, 400, 400, 409, 201),
    "iceberg": (400, 400, 422, 409, 201),
    "acp": (400, 400, 422, 409, 201),
    "ucp": (400, 400, 409, 409, 201),
    "adcp": (400, 400, 409, 409, 201),
    "mastodon": (400, 400, 422, 409, 201),
    "gocardless": (400, 400, 422, 409, 201),
    "mollie": (400, 400, 422, 409, 201),
    "form": (400, 400, 422, 409, 201),
}


def test_every_dialect_has_its_rows() -> None:
    """A new dialect is tested in every table here."""
    assert STATUSES.keys() == REMEMBERED.keys() == BODIES.keys() == DIALECTS.keys()


@pytest.mark.parametrize("name", NAMES)
def test_statuses(name: str) -> None:
    """Each situation has the status that the profile says, and only the first request runs."""
    api, required = Api(name), Api(name, required=True)
    key = new_key(api.profile)
    api.meanwhile = lambda: api.send(key)
    first = api.send(key)
    assert api.inside is not None
    answers = (
        required.send(),
        api.send("\x7f"),
        api.send(key, amount=2),
        api.inside,
        api.send(key),
    )
    assert tuple(answer.status_code for answer in answers) == STATUSES[name]
    assert (first.status_code, api.ran, required.ran, stored()) == (201, 1, 0, 1)
    said = {} if api.profile.marker_member is None else {api.profile.marker_member: True}
    assert json.loads(answers[-1].content) == {"run": 1, **said}


def test_a_replay_is_marked(api: Api) -> None:
    """Every profile says which response is a replay, of which request."""
    key = new_key(api.profile)
    first, replay = (
        api.send(key, {"X-Request-ID": "req-1"}),
        api.send(key, {"X-Request-ID": "req-2"}),
    )
    assert ("Idempotent-Replayed" in first, replay["Idempotent-Replayed"]) == (False, "true")
    assert (first["Original-Request"], replay["Original-Request"]) == ("req-1", "req-1")


@pytest.mark.parametrize(
    ("name", "echoed"),
    [("stripe", {201, 400, 404, 409}), ("adyen", {201, 422}), ("paypal", set()), ("square", set())],
)
def test_the_key_comes_back(name: str, echoed: set[int]) -> None:
    """Where an API repeats the key, we do: on its statuses, on a replay, and never a malformed
    one.
    """
    api = Api(name)
    for status in (201, 400, 404, 409):
        api.status, key = status, new_key(api.profile)
        for _ in range(2):
            assert api.send(key).get(api.profile.field) == (key if status in echoed else None)
    key = new_key(api.profile)
    api.send(key)
    mismatch = api.send(key, amount=2)
    assert (api.profile.field in mismatch) is (mismatch.status_code in echoed)
    assert api.profile.field not in api.send("\x7f")


@pytest.mark.parametrize(
    ("name", "running", "mismatch"),
    [
        ("default", {"Retry-After": "30"}, {}),
        (
            "stripe",
            {"Retry-After": "30", "Stripe-Should-Retry": "true"},
            {"Stripe-Should-Retry": "false"},
        ),
        ("adyen", {"Retry-After": "30", "Transient-Error": "true"}, {}),
    ],
)
def test_whether_to_retry(name: str, running: dict[str, str], mismatch: dict[str, str]) -> None:
    """The client's own header says whether the same request makes sense again."""
    api = Api(name, lease=30)
    key = new_key(api.profile)
    api.meanwhile = lambda: api.send(key)
    api.send(key)
    named = ("Retry-After", "Stripe-Should-Retry", "Transient-Error")
    for answer, expected in ((api.inside, running), (api.send(key, amount=2), mismatch)):
        assert answer is not None
        assert {header: answer[header] for header in named if header in answer} == expected


# ------------------------------------------------------------------------------- what is remembered

TRIED = (201, 303, 400, 401, 402, 403, 404, 408, 409, 415, 422, 425, 429, 500, 503)
_TABLE = {201, 303, 402, 404, 422}
#: Of TRIED, the statuses whose response a retry gets.
REMEMBERED = {
    "default": _TABLE,
    "draft": _TABLE,
    "stripe": _TABLE | {500, 503},
    "adyen": _TABLE | {400, 415},
    "paypal": _TABLE,
    "square": _TABLE,
    "repeatability": set(TRIED) - {500, 503},
    "aip155": {201, 303},
    "zalando": _TABLE,
    "iceberg": _TABLE | {400, 409, 415},
    "acp": _TABLE | {400, 409, 415},
    "ucp": _TABLE,
    "adcp": {201},
    "mastodon": _TABLE,
    "gocardless": _TABLE,
    "mollie": _TABLE,
    "form": {201, 303},
}


@pytest.mark.parametrize("name", NAMES)
def test_what_is_remembered(name: str) -> None:
    """A retry gets the remembered response; after any other it runs again."""
    remembered = set()
    for status in TRIED:
        api = Api(name)
        api.status, key = status, new_key(api.profile)
        api.send(key)
        if "Idempotent-Replayed" in api.send(key):
            remembered.add(status)
        assert api.ran == (1 if status in remembered else 2)
    assert remembered == REMEMBERED[name]


# ----------------------------------------------------------------------------------- errors' bodies


def _code(document: Any) -> Any:
    return document["code"]


#: How a client reads the code of an error, and what it reads for another request and for one that
#: runs.
BODIES: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "default": (_code, "request-mismatch", "in-progress"),
    "draft": (_code, "request-mismatch", "in-progress"),
    "stripe": (
        lambda body: f"{body['error']['type']} {body['error']['code']}",
        "idempotency_error request_mismatch",
        "idempotency_error idempotency_key_in_use",
    ),
    "adyen": (
        lambda body: f"{body['status']} {body['errorCode']}",
        "422 request_mismatch",
        "422 704",
    ),
    "paypal": (
        lambda body: f"{body['name']} {body['details'][0]['issue']}",
        "UNPROCESSABLE_ENTITY REQUEST_MISMATCH",
        "RESOURCE_CONFLICT PREVIOUS_REQUEST_IN_PROGRESS",
    ),
    "square": (lambda body: body["errors"][0]["code"], "IDEMPOTENCY_KEY_REUSED", "CONFLICT"),
    "repeatability": (lambda body: body["error"]["code"], "RequestMismatch", "InProgress"),
    "aip155": (
        lambda body: f"{body['error']['code']} {body['error']['status']}",
        "400 INVALID_ARGUMENT",
        "409 ABORTED",
    ),
    "zalando": (_code, "request-mismatch", "in-progress"),
    "iceberg": (
        lambda body: f"{body['error']['code']} {body['error']['type']}",
        "422 RequestMismatchException",
        "409 InProgressException",
    ),
    "acp": (
        lambda body: f"{body['type']} {body['code']}",
        "invalid_request idempotency_conflict",
        "invalid_request idempotency_in_flight",
    ),
    "ucp": (lambda body: body["code"], "request_mismatch", "in_progress"),
    "adcp": (
        lambda body: f"{body['adcp_error']['code']} {body['errors'][0]['recovery']}",
        "IDEMPOTENCY_CONFLICT correctable",
        "IDEMPOTENCY_IN_FLIGHT transient",
    ),
    "mastodon": (
        lambda body: body["error"],
        (
            "This idempotency key was used for a different request, so this one was not "
            "carried out. Repeat that request "
            "unchanged. If this one is meant, look first if it was carried out: under a "
            "new key that could happen twice."
        ),
        (
            "The first request with this idempotency key is still running. Send it again "
            "later, with the same key."
        ),
    ),
    "gocardless": (
        lambda body: (
            f"{body['error']['code']} {body['error']['type']} "
            f"{body['error']['errors'][0]['reason']}"
        ),
        "422 invalid_api_usage request_mismatch",
        "409 invalid_state in_progress",
    ),
    "mollie": (
        lambda body: f"{body['status']} {body['title']}",
        "422 Idempotency key was used for a different request",
        "409 A request with this idempotency key is running",
    ),
    "form": (_code, "request-mismatch", "in-progress"),  # for a program: a person gets a page
}


@pytest.mark.parametrize("name", NAMES)
def test_the_bodies_of_errors(name: str) -> None:
    """A client of the API reads our errors as that API's."""
    api = Api(name)
    read, mismatch, running = BODIES[name]
    key = new_key(api.profile)
    api.meanwhile = lambda: api.send(key)
    api.send(key)
    kind = "application/problem+json" if read is _code else "application/json"
    for answer, expected in ((api.send(key, amount=2), mismatch), (api.inside, running)):
        assert answer is not None
        assert answer["Content-Type"] == kind
        assert read(json.loads(answer.content)) == expected
        assert key not in answer.content.decode()


@pytest.mark.parametrize(("name", "echoes"), [("acp", True), ("ucp", False)])
def test_keys_of_an_endpoint(name: str, echoes: bool) -> None:
    """One key at two endpoints is two keys; for ACP each response echoes it."""
    api = Api(name)
    key = new_key(api.profile)
    for path, runs in (("/sessions", 1), ("/sessions/1/complete", 2), ("/sessions", 2)):
        answer = api.view(
            FACTORY.post(
                path, b"{}", content_type="application/json", headers={"Idempotency-Key": key}
            )
        )
        assert (answer.status_code, answer.get("Idempotency-Key"), api.ran) == (
            201,
            key if echoes else None,
            runs,
        )


@pytest.mark.parametrize(
    ("sent", "back"),
    [
        ({"context": {"id": 7}}, {"id": 7}),
        ({"context": None}, None),
        ({}, ...),
        ([], ...),
        ("[" * 100_000, ...),
    ],
)
def test_the_context_of_a_buyer(sent: Any, back: Any) -> None:
    """AdCP: an error has the context of its request, and how long to wait if that helps."""
    view = Api("adcp", required=True).view
    posted = sent if isinstance(sent, str) else json.dumps(sent)
    body = json.loads(view(FACTORY.post("/", posted, content_type="application/json")).content)
    assert body.get("context", ...) == back
    assert (body["adcp_error"]["code"], "retry_after" in body["adcp_error"]) == (
        "INVALID_REQUEST",
        False,
    )
    api = Api("adcp", lease=30)
    key = new_key(api.profile)
    api.meanwhile = lambda: api.send(key)
    api.send(key)
    assert api.inside is not None
    assert json.loads(api.inside.content)["errors"][0]["retry_after"] == 30


@pytest.mark.parametrize("context", [{"correlation_id": "second"}, None], ids=["another", "none"])
def test_a_replay_of_adcp_has_the_context_of_its_own_request(context: Any) -> None:
    """With `adcp_replay`: the buyer finds its correlation id, not that of the first request."""

    @idempotent(
        profile=DIALECTS["adcp"],
        required=True,
        scope=lambda request: "buyer",
        fingerprint=json_body(exclude=ADCP_EXCLUDED),
        extensions=[OnReplay(adcp_replay)],
    )
    def buy(request: HttpRequest) -> HttpResponse:
        return JsonResponse({"id": 1, "context": json.loads(request.body)["context"]})

    key = {"idempotency_key": str(uuid4())}
    own = {} if context is None else {"context": context}
    first, second = (
        buy(FACTORY.post("/", json.dumps(key | sent), content_type="application/json"))
        for sent in ({"context": {"correlation_id": "first"}}, own)
    )
    assert json.loads(first.content)["context"] == {"correlation_id": "first"}
    assert json.loads(second.content) == {"id": 1, "replayed": True} | own


@pytest.mark.parametrize(
    "body", [b"", b"bought", b"[1]", DEEP], ids=["204", "text", "a list", "deep"]
)
def test_a_replay_of_adcp_without_an_object(body: bytes) -> None:
    """What has no place for a context is replayed as it was stored."""
    replay = HttpResponse(body)
    assert (
        adcp_replay(FACTORY.post("/", b"{}", content_type="application/json"), replay).content
        == body
    )


def test_a_replay_that_is_nested_too_deep_to_be_marked() -> None:
    """It is sent as it is stored."""
    assert marked(Outcome(200, (("Content-Type", "application/json"),), DEEP), "replayed") == DEEP


def test_a_conflict_of_adcp_says_little() -> None:
    """AdCP's own tests take any member of a conflict's `adcp_error` but these two for a leak of the
    first request.
    """
    api = Api("adcp")
    key = new_key(api.profile)
    api.send(key)
    assert set(json.loads(api.send(key, amount=2).content)["adcp_error"]) == {"code", "message"}


def test_a_key_of_adcp_that_was_seen_and_has_expired() -> None:
    """For a minute after its `ttl` it is replayed, as AdCP has it for clocks that differ.

    Then, with `Tombstones`, it says so.
    """
    api = Api("adcp", ttl=60, extensions=[Tombstones(3600)])
    key = new_key(api.profile)
    api.send(key)
    store: Any = stores["default"]
    answers = []
    for passed in (61, 119, 121):
        store._clock = lambda passed=passed: datetime.now(timezone.utc) + timedelta(seconds=passed)
        try:
            answers.append(api.send(key))
        finally:
            del store._clock
    answer = answers[-1]
    assert [each.status_code for each in answers] == [201, 201, 409]
    assert api.ran == 1
    assert json.loads(answer.content)["adcp_error"]["code"] == "IDEMPOTENCY_EXPIRED"


def test_a_body_of_the_projects_own() -> None:
    """A subclass makes it of the problem, its status and the request."""

    class Ours(Draft):
        error_type = "application/json"

        def error_body(self, problem: Any, status: int, request: Any) -> dict[str, Any]:
            return {"fault": problem.code, "http": status, "of": request.path}

    view = idempotent(profile=Ours, required=True)(lambda request: HttpResponse())
    answer = view(FACTORY.post("/"))
    assert (answer["Content-Type"], json.loads(answer.content)) == (
        "application/json",
        {"fault": "key-missing", "http": 400, "of": "/"},
    )


# ---------------------------------------------------------------------------------- malformed input

TEXTS = st.text(st.characters(codec="utf-8"), max_size=40) | st.text(
    '0123456789abcdef-",\\ ;=\t\x00é', max_size=300
)
VALUES = st.recursive(
    TEXTS | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.booleans(),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2)
    ),
    max_leaves=4,
)


@pytest.mark.parametrize("name", NAMES)
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_key(name: str, data: st.DataObject) -> None:
    """Whatever is sent as a key runs as one, or gets the profile's refusal and leaves nothing."""
    stores["default"]._records.clear()  # type: ignore[attr-defined]
    api = Api(name)
    profile = api.profile
    if profile.carrier == "body":
        answer = api.send(data.draw(VALUES))
    else:
        sent = data.draw(TEXTS)
        meta = {"HTTP_" + profile.field.upper().replace("-", "_"): sent}
        for other in (profile.first_sent_field, profile.client_field):
            if other is not None:
                value = data.draw(st.sampled_from([http_date(), None]) | TEXTS)
                meta |= {} if value is None else {"HTTP_" + other.upper().replace("-", "_"): value}
        request = FACTORY.post("/", b"{}", content_type="application/json")
        request.META |= meta
        answer = api.view(request)
    refused = answer.status_code in map(profile.status_of, (KeyMalformed, KeyExpired))
    assert answer.status_code == 201 or refused
    assert stored() == api.ran == (0 if refused else 1)


@pytest.mark.parametrize("name", [name for name in NAMES if DIALECTS[name].carrier == "header"])
def test_the_longest_key(name: str) -> None:
    """A key may be as long as the profile says, if it has no format of its own, and no longer."""
    api = Api(name)
    if api.profile.pattern is None:
        assert api.send("k" * api.profile.max_length).status_code == 201
    assert api.send("k" * (api.profile.max_length + 1)).status_code == 400


@pytest.mark.parametrize(
    ("body", "status", "ran"),
    [
        (b'{"amount": 1}', 201, 1),  # no key: the client has not asked
        (b'{"idempotency_key": null}', 201, 1),
        (b"[]", 201, 1),
        (b'{"idempotency_key": ""}', 400, 0),
        (b'{"idempotency_key": 5}', 400, 0),
        (b'{"idempotency_key": {"a": 1}}', 400, 0),
        (b'{"idempotency_key": "\\ud800"}', 400, 0),
    ],
)
def test_a_key_in_the_body(body: bytes, status: int, ran: int) -> None:
    """A key in the body is text; without one the request runs, and no response says otherwise."""
    api = Api("square")
    answer = api.view(FACTORY.post("/", body, content_type="application/json"))
    assert (answer.status_code, api.ran, stored()) == (status, ran, 0)
    assert ("Idempotency-Status" in answer) is (status == 400)


def test_a_body_that_cannot_be_read() -> None:
    """A key may be in there, so it is said that the request ran unguarded, or refused where keys
    are required.
    """
    for required, status in ((False, "unguarded"), (True, None)):
        answer = Api("square", required=required).view(
            FACTORY.post("/", b"{", content_type="application/json")
        )
        assert answer.get("Idempotency-Status") == status
        assert answer.status_code == (400 if required else 201)


# ------------------------------------------------------------------------- structured fields (draft)


@pytest.mark.parametrize(
    ("sent", "key"),
    [
        ('"k"', "k"),
        ('  "k"  ', "k"),
        ('"a b"', "a b"),
        (r'"a\"b\\c"', r'a"b\c'),
        ('"a,b"', "a,b"),
        ('"k";a', "k"),  # parameters do not count
        ('"k"; a=1;b=?0;c="x";d=tok/en;e=:aGk=:;f=-1.5;g=@1659578233;h=%"f%c3%bc"', "k"),
        ("k", None),  # a token, not a string
        ("1", None),
        ('""', None),
        ('"k', None),
        ('k"', None),
        ('"k" x', None),
        ('"k","k"', None),  # a list
        ('("k")', None),
        (r'"\k"', None),
        ('"k\t"', None),
        ('"ü"', None),
        ('"k";A=1', None),
        ('"k";a=', None),
        ('"k" ;a', None),
        ("'k'", None),
        ('\t"k"', None),
    ],
)
def test_a_string_of_rfc_9651(sent: str, key: str | None) -> None:
    """The draft's header is one string of structured fields, and nothing else."""
    if key is None:
        with pytest.raises(KeyMalformed, match="double quotes"):
            Draft().read_key(sent, {})
    else:
        assert Draft().read_key(sent, {}) == key


# ------------------------------------------------------------------------------ repeatable requests

ID, SENT, CLIENT, RESULT = (
    *("Repeatability-Request-ID", "Repeatability-First-Sent", "Repeatability-Client-ID"),
    "Repeatability-Result",
)


class TestRepeatability:
    """The state table of OASIS Repeatable Requests 1.0, as Azure has it."""

    @pytest.mark.parametrize(
        ("headers", "status"),
        [
            ({ID: "a"}, 400),
            ({SENT: http_date()}, 400),
            ({ID: "a", SENT: "yesterday"}, 400),
            ({ID: "a", SENT: "Sunday, 06-Nov-94 08:49:37 GMT"}, 400),  # RFC 850's
            ({ID: "a", SENT: "Sun, 31 Feb 2094 08:49:37 GMT"}, 400),
            ({ID: "a b", SENT: http_date()}, 400),
            ({ID: "a", SENT: http_date(), CLIENT: "b c"}, 400),
            ({ID: "a", SENT: http_date(0)}, 412),
            ({ID: "a", SENT: "Fri, 31 Dec 2100 23:59:59 GMT"}, 412),
        ],
    )
    def test_refused(self, headers: dict[str, str], status: int) -> None:
        """Both headers or neither, and both well formed, in time."""
        api = Api("repeatability")
        answer = api.send(None, headers)
        assert (answer.status_code, answer[RESULT], api.ran, stored()) == (status, "rejected", 0, 0)

    def test_neither(self) -> None:
        """Without the headers it is a request like any other."""
        assert RESULT not in Api("repeatability").send()

    def test_accepted(self) -> None:
        """The first, its replay, and one that runs meanwhile are accepted; another request is
        not.
        """
        api, key = Api("repeatability"), str(uuid4())
        api.meanwhile = lambda: api.send(key)
        first = api.send(key)
        assert api.inside is not None
        said = [
            (answer.status_code, answer[RESULT]) for answer in (first, api.inside, api.send(key))
        ]
        assert said == [(201, "accepted"), (409, "accepted"), (201, "accepted")]
        mismatch = api.send(key, amount=2)
        assert (mismatch.status_code, mismatch[RESULT]) == (400, "rejected")

    @pytest.mark.parametrize(("status", "runs"), [(404, 1), (429, 1), (500, 2)])
    def test_again(self, status: int, runs: int) -> None:
        """After 2xx or 4xx a retry gets that; after 5xx it runs again. Each is accepted."""
        api, key = Api("repeatability"), str(uuid4())
        api.status = status
        answers = [api.send(key), api.send(key)]
        assert [(answer.status_code, answer[RESULT]) for answer in answers] == [
            (status, "accepted")
        ] * 2
        assert api.ran == runs

    def test_not_supported(self) -> None:
        """Valid headers on a method that the policy does not guard get 501; malformed ones 400;
        without any it runs.
        """
        api = Api("repeatability", methods=["PUT"])
        answers = [api.send("a"), api.send(None, {ID: "a"}), api.send()]
        assert [answer.status_code for answer in answers] == [501, 400, 201]
        assert api.ran == 1

    def test_of_two_clients(self) -> None:
        """A client that names itself has keys of its own."""
        api = Api("repeatability")
        clients: tuple[dict[str, str], ...] = ({}, {CLIENT: "x"}, {CLIENT: "y"}, {})
        runs = [json.loads(api.send("a", named).content)["run"] for named in clients]
        assert runs == [1, 2, 3, 1]

    @pytest.mark.parametrize(
        ("age", "accepted"),
        [(0, True), (-300, True), (-301, False), (12 * 3600, True), (12 * 3600 + 1, False)],
    )
    def test_the_window(self, age: int, accepted: bool) -> None:
        """The window is closed at both ends, to the second."""
        now = datetime(2030, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
        sent = {
            "HTTP_REPEATABILITY_FIRST_SENT": http_date((now - timedelta(seconds=age)).timestamp())
        }
        if accepted:
            Repeatability().require_timely("a", sent, now=now)
        else:
            with pytest.raises((KeyExpired, KeyAhead)):
                Repeatability().require_timely("a", sent, now=now)
