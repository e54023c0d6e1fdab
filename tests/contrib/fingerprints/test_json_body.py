"""Members that do not count, and numbers that are one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.http import HttpResponse, JsonResponse
from django.test import RequestFactory

from django_idempotency import Policy, idempotent
from django_idempotency.contrib.fingerprints import json_body
from django_idempotency.core.hashing import canonical_json

pytest.importorskip("rfc8785")
POST = RequestFactory().post

BODY = {
    "amount": 1,
    "sent_at": "10:00",
    "trace": {"id": "a", "host": "h"},
    "items": [{"sku": 1, "line": 7}, 5],
}


pytestmark = pytest.mark.django_db(transaction=True)


def same(exclude: list[str], one: Any, other: Any) -> bool:
    of = json_body(exclude=exclude).of
    return of(json.dumps(one).encode()) == of(json.dumps(other).encode())


@pytest.mark.parametrize(
    ("path", "change", "counts"),
    [
        ("sent_at", {"sent_at": "10:01"}, False),
        ("sent_at", {"sent_at": {"any": "type"}}, False),
        ("trace.id", {"trace": {"id": "b", "host": "h"}}, False),
        ("trace.id", {"trace": {"id": "a", "host": "other"}}, True),
        ("trace.id", {"trace": "id"}, True),
        ("items[].line", {"items": [{"sku": 1, "line": 8}, 5]}, False),
        ("items[].line", {"items": [{"sku": 2, "line": 7}, 5]}, True),
        ("items[].line", {"items": [{"sku": 1, "line": 7}, 5, {"line": 8}]}, True),  # one more
        ("items[]", {"items": []}, False),
        ("items[]", {"items": {}}, True),
        ("nothing.at[].all", {"amount": 2}, True),
        ("id", {"trace": {"id": "b", "host": "h"}}, True),  # no path means "anywhere"
    ],
)
def test_what_counts(path: str, change: dict[str, Any], counts: bool) -> None:
    """Exactly what a path names does not count."""
    assert same([path], BODY, {**BODY, **change}) is not counts
    assert same([path], BODY, dict(reversed(BODY.items())))


def test_paths_that_can_be_read_once() -> None:
    """They exclude what they name."""
    assert json_body(exclude=iter(["a"])).exclude == (("a",),)  # type: ignore[arg-type]


def test_a_list_of_objects() -> None:
    """A body may be a list."""
    assert same(["[].id"], [{"id": 1, "to": "a"}, 2], [{"id": 2, "to": "a"}, 2])
    assert not same(["[].id"], [{"id": 1, "to": "a"}], [{"id": 1, "to": "b"}])


def test_a_missing_member_is_an_excluded_one() -> None:
    """A client that leaves out what does not count sends the same request."""
    assert same(["trace"], BODY, {name: value for name, value in BODY.items() if name != "trace"})


def test_without_exclusions_it_is_the_default() -> None:
    """Numbers keep the text in which they were sent."""
    body = b'{"amount": 1.10, "at": [1e0]}'
    assert json_body().of(body) == canonical_json(body)
    assert json_body().of(b'{"a": 1.10}') != json_body().of(b'{"a": 1.1}')


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("1", "1.0", True),
        ("1", "1e0", True),
        ("0.1", "1e-1", True),
        ("-0", "0", True),
        ("333333333.33333329", "333333333.3333333", True),  # of RFC 8785 appendix B
        ("1", "2", False),
        ("1", '"1"', False),
        # No double tells them apart: compared as they were sent.
        (
            "9007199254740993",
            "9007199254740992",
            False,
        ),
        ("1e400", "2e400", False),
        ("null", "0", False),
    ],
)
def test_numbers_of_rfc_8785(one: str, other: str, equal: bool) -> None:
    """Numbers that JavaScript writes alike are one; others are not."""
    of = json_body(numbers="rfc8785", exclude=["at"]).of
    bodies = [
        f'{{"at": {at}, "number": {number}}}'.encode() for at, number in enumerate((one, other))
    ]
    assert (of(bodies[0]) == of(bodies[1])) is equal


#: RFC 8785 appendix B: a number as a double, and as it is written.
VECTORS = {
    "5e-324": "5e-324",
    "-5e-324": "-5e-324",
    "1.7976931348623157e308": "1.7976931348623157e+308",
    "9007199254740991.0": "9007199254740991",
    "9.999999999999997e22": "9.999999999999997e+22",
    "1e23": "1e+23",
    "999999999999999700000.0": "999999999999999700000",
    "1e21": "1e+21",
    "9.999999999999997e-7": "9.999999999999997e-7",
    "0.000001": "0.000001",
    "333333333.3333332": "333333333.3333332",
    "333333333.33333325": "333333333.33333325",
    "-0.0000033333333333333333": "-0.0000033333333333333333",
    "1424953923781206.25": "1424953923781206.2",
}


@pytest.mark.parametrize(("sent", "written"), VECTORS.items())
def test_the_vectors_of_rfc_8785(sent: str, written: str) -> None:
    """Each number is compared as the RFC writes it."""
    assert json_body(numbers="rfc8785").of(f"[{sent}]".encode()) == f"[{written}]".encode()


@pytest.mark.parametrize(
    "body", [b'{"a": 1, "a": 2}', b"[NaN]", b"{", b"\xff", b'"' + b"x" * 65 * 1024 + b'"']
)
def test_what_is_compared_whole(body: bytes) -> None:
    """What two parsers may read in two ways is not compared by value."""
    for numbers in ("exact", "rfc8785"):
        with pytest.raises(ValueError, match="by value"):
            json_body(numbers=numbers, exclude=["a"]).of(body)


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"exclude": "sent_at"}, "type a list"),
        ({"exclude": ["a..b"]}, "names members of objects"),
        ({"exclude": ["[]"]}, "names members of objects"),
        ({"exclude": ["a[0]"]}, "names members of objects"),
        # Other languages, in which nothing would be excluded.
        *(
            ({"exclude": [path]}, "names members of objects")
            for path in ("$.a", "$", "@.a", "*.a", "a.*", "/a", "/a/b", "")
        ),
        ({"exclude": b"ab"}, "a path is text"),
        ({"exclude": [None]}, "a path is text"),
        ({"numbers": "float"}, '"exact" or "rfc8785"'),
    ],
)
def test_wrong_terms(terms: dict[str, Any], message: str) -> None:
    """They are refused where they are typed."""
    with pytest.raises((TypeError, ValueError), match=message):
        json_body(**terms)


def test_policies_are_compared_by_what_they_say() -> None:
    """Two policies with the same exclusions are equal, and can be keys of a dict."""
    one, other = (Policy(fingerprint=json_body(exclude=["a.b"])) for _ in range(2))
    assert one == other
    assert one != Policy(fingerprint=json_body(exclude=["a"]))


@pytest.mark.django_db
@pytest.mark.any_database
def test_a_guarded_view() -> None:
    """A retry with another time stamp is replayed; one with another amount is refused; a form is
    compared whole.
    """
    ran = []

    @idempotent(
        scope=lambda request: "me", fingerprint=json_body(exclude=["sent_at"], numbers="rfc8785")
    )
    def charge(request: Any) -> HttpResponse:
        ran.append(request.body)
        return JsonResponse({"ran": len(ran)}, status=201)

    def send(body: Any, key: str = "k-1", **more: Any) -> HttpResponse:
        more = more or {"content_type": "application/json"}
        return charge(POST("/charges", body, headers={"Idempotency-Key": key}, **more))

    assert send('{"amount": 5, "sent_at": 1}').status_code == 201
    again = send('{"sent_at": 2, "amount": 5.0}')
    assert (again.status_code, json.loads(again.content)) == (201, {"ran": 1})
    assert send('{"amount": 6, "sent_at": 1}').status_code == 422
    form = {"content_type": "application/x-www-form-urlencoded"}
    assert send("amount=5&sent_at=1", "k-2", **form).status_code == 201
    assert send("amount=5&sent_at=1", "k-2", **form).status_code == 201
    assert send("amount=5&sent_at=2", "k-2", **form).status_code == 422
    assert len(ran) == 2


@pytest.mark.parametrize("depth", [127, 128, 129, 400, 800])
@pytest.mark.parametrize("opened", ["[", '{"a":'])
def test_json_that_is_nested_deep(depth: int, opened: str) -> None:
    """However deep it is, it is carried out once: the package of RFC 8785 recurses, and is not
    given what is too deep.
    """
    closed = "]" if opened == "[" else "}"
    body = opened * depth + "1" + closed * depth
    runs = []

    def work(request: Any) -> HttpResponse:
        runs.append(1)
        return JsonResponse({}, status=201)

    view = idempotent(fingerprint=json_body(numbers="rfc8785"), scope=lambda _: "all")(work)
    for _ in range(2):
        request = POST(
            "/",
            body,
            content_type="application/json",
            headers={"Idempotency-Key": f"{depth}-{len(opened)}"},
        )
        assert view(request).status_code == 201
    assert len(runs) == 1


def test_what_recurses_is_not_given_what_is_deep(monkeypatch: pytest.MonkeyPatch) -> None:
    """How deep it may go depends on the Python and on who calls: a retry must not be compared
    otherwise.
    """

    def dumps(value: Any) -> bytes:
        raise RecursionError

    monkeypatch.setattr("rfc8785.dumps", dumps)
    of = json_body(numbers="rfc8785").of
    assert of(b"[" * 129 + b"]" * 129) == canonical_json(b"[" * 129 + b"]" * 129)
    with pytest.raises(RecursionError):
        of(b"[" * 128 + b"]" * 128)
