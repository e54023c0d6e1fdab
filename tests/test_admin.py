"""The admin: what it reads, what it hides, what it lets be done, and to whom it says no."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from django_idempotency import redaction
from django_idempotency.admin import listing, responses
from django_idempotency.core.records import MISSING, Guarantee, Outcome, Status, Ticket
from django_idempotency.core.rules import Ending
from django_idempotency.models import IdempotencyRecord
from django_idempotency.registry import stores
from django_idempotency.stores.operating import Intervention
from django_idempotency.stores.orm import ORMStore
from django_idempotency.testing.tickets import make_ticket

from .factories import AdminFactory, UserFactory
from .stores.acting import Call, atomic_ticket, elsewhere, row

LIST = "/admin/django_idempotency/idempotencyrecord/"
JSON = (("Content-Type", "application/json"),)


def page_of(ticket: Ticket, verb: str = "change") -> str:
    return reverse(f"admin:django_idempotency_idempotencyrecord_{verb}", args=[ticket.id])


def completed(body: Any = b"{}", headers: Any = JSON, **fields: Any) -> Ticket:
    """Store a response under a key, as a request would."""
    ticket = atomic_ticket(**{"key": uuid4().hex, **fields})
    operation = Call(ticket=ticket).operation
    operation.open()
    operation.settle(Ending.KEPT, Outcome(status=201, headers=headers, body=body))
    return ticket


def released(ended: Ending = Ending.FAILED, **fields: Any) -> Ticket:
    ticket = atomic_ticket(**{"key": uuid4().hex, **fields})
    Call(ticket=ticket).run(ended)
    return ticket


def running(**fields: Any) -> Ticket:
    """Claim a key and leave it at that. Its lease lapses at once, unless `lease` says otherwise."""
    ticket = atomic_ticket(**{"key": uuid4().hex, **fields})
    ORMStore().claim(ticket)
    return ticket


@contextmanager
def held(ticket: Ticket) -> Iterator[None]:
    """Hold a record, as a living worker does. Others must look through another connection."""
    with ORMStore().guard(ticket) as hold:
        assert hold.record is not None
        yield
        hold.give_up()


def staff(*permissions: str) -> Client:
    client, user = Client(), UserFactory(is_staff=True)
    codenames = ("view_idempotencyrecord", *permissions)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    client.force_login(user)
    return client


def text_of(response: Any) -> str:
    assert response.status_code == 200, response
    return str(response.content.decode())


@pytest.fixture
def boss(db: None) -> Client:
    client = Client()
    client.force_login(AdminFactory())
    return client


# ------------------------------------------------------------------------------------------------------------ the list


def keys(response: Any) -> list[str]:
    return [record.key for record in response.context["cl"].result_list]


@pytest.mark.django_db
class TestList:
    def test_nothing_is_counted(self, boss: Client) -> None:
        """One statement on our table, by expiry, with a limit, and without the response."""
        completed()
        with CaptureQueriesContext(
            connection,
        ) as queries:
            boss.get(LIST)
        ours = [query["sql"] for query in queries if "idempotency_record" in query["sql"]]
        assert len(ours) == 1
        assert not [query["sql"] for query in queries if "COUNT(" in query["sql"].upper()]
        assert "LIMIT 51" in ours[0]
        assert re.search(r"ORDER BY .{0,40}expires_at. DESC", ours[0])
        assert "response_body" not in ours[0]

    @pytest.mark.parametrize(
        "query", ["?status__exact=2", "?method=POST", "?response=2", "?guarantee__exact=atomic", "?q=k"]
    )
    def test_a_filter_costs_one_statement_more(self, boss: Client, query: str) -> None:
        """It asks the index where the first 20,000 rows of the window end."""
        completed()
        with CaptureQueriesContext(connection) as queries:
            assert boss.get(f"{LIST}{query}").status_code == 200
        ours = [query["sql"] for query in queries if "idempotency_record" in query["sql"]]
        assert len(ours) == 2
        assert not [sql for sql in ours if "COUNT(" in sql.upper()]

    def test_a_filter_looks_at_part_of_the_window_and_says_so(self, boss: Client, monkeypatch: Any) -> None:
        """Rows behind the first SCANNED are not looked at."""
        first, *_ = [completed(ttl=ttl) for ttl in (1000, 2000, 3000)]
        monkeypatch.setattr(listing, "SCANNED", 2)
        response = boss.get(f"{LIST}?method=POST")
        assert len(keys(response)) == 2
        assert first.key not in keys(response)
        assert "Choose a narrower one" in text_of(response)
        assert "Choose a narrower one" not in text_of(boss.get(LIST))

    def test_pages_know_only_their_neighbours(self, boss: Client, monkeypatch: Any) -> None:
        """Each page knows whether there is another; the last one does not offer it."""
        tickets = [completed(ttl=ttl) for ttl in (3000, 2000, 1000)]
        admin_of(boss, monkeypatch, list_per_page=2)
        first, second = boss.get(LIST), boss.get(f"{LIST}?p=2")
        assert keys(first) + keys(second) == [ticket.key for ticket in tickets]
        assert 'rel="next"' in text_of(first)
        assert 'rel="prev"' not in text_of(first)
        assert 'rel="next"' not in text_of(second)
        assert 'rel="prev"' in text_of(second)
        assert "Select all 3" not in text_of(first)

    @pytest.mark.parametrize("page", ["0", "-1", "999999999", "x"])
    def test_a_page_that_cannot_be(self, boss: Client, page: str) -> None:
        assert boss.get(f"{LIST}?p={page}", follow=True).status_code == 200

    def test_the_window(self, boss: Client) -> None:
        """What has not expired, unless another window is chosen."""
        soon, later, past = completed(ttl=600), completed(ttl=86400 * 3), completed(ttl=-60)
        windows = {"": {soon, later}, "hour": {soon}, "week": {soon, later}, "past": {past}, "all": {soon, later, past}}
        for window, tickets in windows.items():
            assert set(keys(boss.get(f"{LIST}?expires={window}"))) == {ticket.key for ticket in tickets}, window

    @pytest.mark.parametrize("order", ["1", "-3", "2.1", "x"])
    def test_no_other_order(self, boss: Client, order: str) -> None:
        """Any order but that of the index would sort the table."""
        tickets = [completed(ttl=ttl, key=key) for ttl, key in [(3000, "b"), (2000, "a"), (1000, "c")]]
        assert keys(boss.get(f"{LIST}?o={order}")) == [ticket.key for ticket in tickets]

    @pytest.mark.parametrize(
        "lookup", ["response_body__contains=a", "key__startswith=a", "response_headers__contains=a"]
    )
    def test_no_other_lookup(self, boss: Client, lookup: str) -> None:
        """Else the number of hits would tell what may not be seen."""
        assert boss.get(f"{LIST}?{lookup}").status_code == 400

    @pytest.mark.parametrize(
        "query", ["expires=x", "method=x%00", "response=9", "status__exact=x", "q=%00", "q=a%00+b"]
    )
    def test_odd_filters(self, boss: Client, query: str) -> None:
        assert boss.get(f"{LIST}?{query}", follow=True).status_code == 200

    def test_labels(self, boss: Client) -> None:
        """The status, seen together with its deadlines."""
        completed()
        released()
        running()
        running(lease=60)
        completed(ttl=-60)
        labels = set(re.findall(r'idempotency-label (\w+)"', text_of(boss.get(f"{LIST}?expires=all"))))
        assert labels == {"completed", "free", "running", "leased", "expired"}


@pytest.mark.django_db
class TestSearch:
    def test_scope_and_key_go_to_the_primary_key(self, boss: Client) -> None:
        """Wherever the record is: here, outside of the window and of the filters."""
        ticket = completed(scope="user:auth.user:7", key="order-42", ttl=-60)
        completed()
        with CaptureQueriesContext(connection) as queries:
            response = boss.get(f"{LIST}?q=user:auth.user:7+order-42&method=PUT")
        assert keys(response) == [ticket.key]
        assert not [query["sql"] for query in queries if "scope' =" in query["sql"]]

    def test_spaces_in_either(self, boss: Client) -> None:
        completed(scope="our shop", key="order 42")
        completed()
        assert keys(boss.get(f"{LIST}?q=our+shop+order+42")) == ["order 42"]

    def test_id(self, boss: Client) -> None:
        ticket, _ = completed(), completed()
        assert keys(boss.get(f"{LIST}?q={ticket.id}")) == [ticket.key]

    def test_a_key_or_a_scope_alone_stays_in_the_window(self, boss: Client) -> None:
        alive, dead = completed(key="order-42", scope="a"), completed(key="order-42", scope="b", ttl=-60)
        for term in ("order-42", "a"):
            assert keys(boss.get(f"{LIST}?q={term}")) == [alive.key]
        found = boss.get(f"{LIST}?q=order-42&expires=all").context["cl"].result_list
        assert {record.scope for record in found} == {alive.scope, dead.scope}


@pytest.mark.django_db
@pytest.mark.skipif("connection.vendor != 'postgresql'", reason="reads PostgreSQL's plans")
class TestScale:
    @pytest.fixture
    def crowd(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                """INSERT INTO django_idempotency_record SELECT gen_random_uuid(), 'user:' || n % 50, 'key-' || n, 'POST',
                '/charges/', 'atomic', '\\x00', 2, gen_random_uuid(), 1, now(), now(), now(), now() + n * interval '4 s',
                '', 201, '[]', '\\x00' FROM generate_series(1, 20000) n"""
            )
            cursor.execute("ANALYZE django_idempotency_record")

    @pytest.mark.parametrize(
        "query", ["", "?expires=all", "?expires=hour", "?p=40", "?method=POST", "?q=key-19999", "?status__exact=0"]
    )
    def test_the_list_walks_the_index(self, crowd: None, boss: Client, monkeypatch: Any, query: str) -> None:
        """Neither a scan of the table nor a sort of it."""
        monkeypatch.setattr(listing, "SCANNED", 1000)  # the table is twenty times that
        with CaptureQueriesContext(connection) as queries:
            boss.get(f"{LIST}{query}")
        for statement in [query["sql"] for query in queries if "idempotency_record" in query["sql"]]:
            with connection.cursor() as cursor:
                cursor.execute("EXPLAIN " + statement.replace("%", "%%"))
                plan = "\n".join(line for (line,) in cursor.fetchall())
            assert "expires_at" in plan, plan
            assert re.search(r"Index (Only )?Scan", plan), plan
            assert "Seq Scan" not in plan, plan
            if not re.search("method|q=|status", query):  # a filter leaves so few that they may be sorted
                assert "->  Sort" not in plan, plan


# ---------------------------------------------------------------------------------------------------------- the record


@pytest.mark.django_db
class TestRecordPage:
    def test_facts(self, boss: Client) -> None:
        ticket = completed(b'{"amount": 2499.10}', key="order-42", scope="user:auth.user:7", path="/api/charges/")
        text = text_of(boss.get(page_of(ticket)))
        for fact in (
            "order-42",
            "user:auth.user:7",
            "POST /api/charges/",
            ticket.digest.hex(),
            "application/json",
            "201",
        ):
            assert fact in text
        assert "&quot;amount&quot;: 2499.10" in text

    def test_what_a_request_would_get(self, boss: Client) -> None:
        """In words, for each place that a record can stand."""
        table = [
            (completed(), "gets the response below again"),
            (completed(MISSING), "gets 409 response-not-stored"),
            (released(), "runs the work as attempt 2; another body"),
            (released(Ending.DROPPED), "runs the work as attempt 2; it may carry another body"),
            (running(lease=60), "gets 409 in-progress"),
            (running(), "if that has died, runs as attempt 2"),
            (completed(ttl=-60), "as if this record had never been"),
        ]
        for ticket, words in table:
            assert words in text_of(boss.get(page_of(ticket))), words

    @pytest.mark.parametrize("verb", ["change", "release", "expire", "history"])
    def test_no_such_record(self, boss: Client, verb: str) -> None:
        assert boss.get(page_of(make_ticket(), verb)).status_code in (302, 404)

    @pytest.mark.parametrize("evil", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>'])
    def test_nothing_stored_becomes_markup(self, boss: Client, evil: str) -> None:
        """Keys, scopes, paths, headers and bodies are text, on every page."""
        html = (("Content-Type", "text/html"), (evil, evil), ("X-A", evil))
        ticket = completed(evil.encode(), html, key=evil, scope=evil, path=f"/{evil}", method="POST")
        weird = completed(evil.encode(), (("Content-Type", evil),), key="2")
        as_json = completed(json.dumps({evil: [evil]}).encode(), key="3")
        pages = [LIST, f"{LIST}?q={evil}", page_of(weird), page_of(as_json)]
        pages += [page_of(ticket, verb) for verb in ("change", "release", "expire", "history")]
        for page in pages:
            assert evil not in text_of(boss.get(page)), page
        confirm = {"action": "release_records", "_selected_action": [str(ticket.id)]}
        assert evil not in text_of(boss.post(LIST, confirm))
        assert evil not in text_of(boss.post(page_of(ticket, "release"), follow=True))

    def test_a_page_is_read_only(self, boss: Client) -> None:
        ticket = completed()
        assert boss.post(page_of(ticket), {"status": 0}).status_code == 403
        assert boss.get(f"{LIST}add/").status_code == 403
        assert boss.post(page_of(ticket, "delete"), {"post": "yes"}).status_code == 403
        delete = {"action": "delete_selected", "_selected_action": [str(ticket.id)], "post": "yes"}
        boss.post(LIST, delete)
        assert row(ticket).status == Status.COMPLETED


BODIES = [
    # content type, body → kind, what is shown, what must not be
    ("application/json", b'{"token": "abc", "n": [1, 2.50]}', "json", "2.50", "abc"),
    ("application/problem+json; charset=utf-8", '{"title": "é"}'.encode(), "json", "é", ""),
    ("application/json", b'{"password": "my pass', "text", "redacted", "my pass"),  # cut off: no JSON
    ("application/json", b"[" * 100_000, "text", "[[[", ""),  # too deep for the parser
    ("text/html", b"<b>hi</b>", "text", "<b>hi</b>", ""),
    ("text/plain; charset=latin-1", "é".encode("latin-1"), "text", "é", ""),
    ("text/plain; charset=no-such", b"ok", "text", "ok", ""),
    ("text/csv", b"a,b\n\xff", "text", "a,b", ""),
    ("image/png", b"\x89PNG", "image", "", ""),
    ("IMAGE/JPEG", b"\xff\xd8", "image", "", ""),
    ("image/svg+xml", b"<svg onload='alert(1)'/>", "text", "<svg", ""),  # as text: a document may run scripts
    ("image/avif", b"\x00", "binary", "", ""),
    ("application/pdf", b"%PDF", "binary", "", ""),
    ("", b"?", "binary", "", ""),
    ("nonsense", b"<b>", "text", "<b>", ""),  # RFC 2045: what cannot be read is text/plain
    ("application/json", b"", "empty", "", ""),
    ("application/json", None, "absent", "", ""),
]


class TestResponses:
    @pytest.mark.parametrize(("content_type", "body", "kind", "shown", "hidden"), BODIES)
    def test_kinds(self, content_type: str, body: bytes | None, kind: str, shown: str, hidden: str) -> None:
        response = responses.shown(stored(body, {"Content-Type": content_type}), body_allowed=True)
        assert response is not None
        assert response.kind == kind
        assert shown in response.text
        assert not hidden or hidden not in response.text
        assert bool(response.source) == (kind == "image")

    def test_without_permission(self) -> None:
        """Type and size, and not a byte."""
        response = responses.shown(stored(b'{"a": 1}', {"Content-Type": "application/json"}), body_allowed=False)
        assert response is not None
        assert (response.kind, response.size, response.content_type) == ("hidden", 8, "application/json")
        assert response.text == response.source == ""

    def test_compressed(self) -> None:
        import gzip
        import zlib

        for encoding, body in [("gzip", gzip.compress(b'{"a": 1}')), ("deflate", zlib.compress(b'{"a": 1}'))]:
            headers = {"Content-Type": "application/json", "Content-Encoding": encoding}
            response = responses.shown(stored(body, headers), body_allowed=True)
            assert response is not None
            assert response.text == '{\n  "a": 1\n}'

    @pytest.mark.parametrize("body", [b"no gzip", b""])
    def test_not_what_its_encoding_says(self, body: bytes) -> None:
        headers = {"Content-Type": "text/plain", "Content-Encoding": "gzip"}
        response = responses.shown(stored(body, headers), body_allowed=True)
        assert response is not None
        assert response.kind == ("binary" if body else "empty")

    def test_a_bomb_is_not_unpacked(self) -> None:
        import gzip

        headers = {"Content-Type": "text/plain", "Content-Encoding": "gzip"}
        response = responses.shown(stored(gzip.compress(b"0" * (1 << 24)), headers), body_allowed=True)
        assert response is not None
        assert response.kind == "binary"

    def test_long_text_is_cut_after_it_was_masked(self) -> None:
        body = b"x" * (responses.MAX_TEXT - 30) + b' "password": "' + b"secret" * 10 + b'"'
        response = responses.shown(stored(body, {"Content-Type": "text/plain"}), body_allowed=True)
        assert response is not None
        assert response.cut == (len(body) > responses.MAX_TEXT and len(response.text) == responses.MAX_TEXT)
        assert "secretsecret" not in response.text

    @pytest.mark.parametrize("headers", ["", "nonsense", "{}", "[1]", '[["a"]]', "null"])
    def test_headers_that_nobody_can_read(self, headers: str) -> None:
        """A row that somebody else wrote is no error page."""
        record = IdempotencyRecord(response_status=200, response_headers=headers, response_body=b"x")
        response = responses.shown(record, body_allowed=True)
        assert response is not None
        assert response.headers == []


def stored(body: bytes | None, headers: dict[str, str]) -> IdempotencyRecord:
    return IdempotencyRecord(
        response_status=200, response_headers=json.dumps(list(headers.items())), response_body=body
    )


# ------------------------------------------------------------------------------------------- redaction (no database)


class TestRedaction:
    @pytest.mark.parametrize(
        "name",
        [
            *("password", "client_secret", "clientSecret", "X-Api-Key", "access_token", "cvv", "cvc2", "card_pin"),
            *("PIN", "cardNumber", "card-number", "IBAN", "private key", "Set-Cookie", "otpCode", "refreshTokenHash"),
        ],
    )
    def test_secret_names(self, name: str) -> None:
        assert redaction.secret_name(name)

    @pytest.mark.parametrize(
        "name", ["shipping", "spin", "amount", "panel", "key", "id", "currency", "Idempotency-Key", ""]
    )
    def test_other_names(self, name: str) -> None:
        assert not redaction.secret_name(name)

    @pytest.mark.parametrize(
        ("text", "secret"),
        [
            ("card 4242424242424242 charged", "424242424242"),
            ("card 4242 4242 4242 4242.", "4242 4242 4242"),
            ("4000-0566-5566-5556", "4000-0566"),
            ("6212345678901232", "62123456"),  # UnionPay
            ("pay DE89 3704 0044 0532 0130 00 NOW", "3704 0044"),
            ("GB82WEST12345698765432", "WEST123"),
            ("Authorization: Bearer abc.def-ghi", "abc.def"),
            ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl", "eyJzdWIi"),
            ("use sk_live_abcdefgh12345", "abcdefgh"),
            ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----", "MIIE"),
            ("-----BEGIN PRIVATE KEY-----\nMIIE", "MIIE"),
            ("a=1&password=hunter2&b=2", "hunter2"),
            ('{"password": "hunter2 or 3", ', "hunter2"),
            ("{'api_key': 'hunter2'}", "hunter2"),
            ("/reset?token=hunter2", "hunter2"),
            ('<input type="hidden" name="csrfmiddlewaretoken" value="hunter2">', "hunter2"),
            ("<input value=hunter2 name=password>", "hunter2"),
            ('<meta name="csrf-token" content="hunter2">', "hunter2"),
            ("<a><password kind='x'>hunter2</password></a>", "hunter2"),
        ],
    )
    def test_text(self, text: str, secret: str) -> None:
        assert secret in text
        assert secret not in redaction.text(text)
        assert "redacted" in redaction.text(text)

    @pytest.mark.parametrize(
        "text",
        [
            "order 1234567890123 of 2026-11-20 14:16:28",
            "3f2504e0-4f89-11d3-9a0c-0305e82c3301",
            "amount=2499&currency=inr",
            "a token of thanks",
            "https://example.com/charges/17/",
            "<p>shipping: fast</p>",
            "",
        ],
    )
    def test_text_that_stays(self, text: str) -> None:
        assert redaction.text(text) == text

    @pytest.mark.parametrize(
        ("value", "shown"),
        [
            ('{"token": "a"}', '{\n  "token": "[redacted]"\n}'),
            ('{"token": {"deep": 1}}', '{\n  "token": "[redacted]"\n}'),
            ('{"pin": 1234}', '{\n  "pin": "[redacted]"\n}'),
            ('{"pin": 0}', '{\n  "pin": "[redacted]"\n}'),
            (
                '{"token": null, "pin": "", "password": true}',
                '{\n  "token": null,\n  "pin": "",\n  "password": true\n}',
            ),
            ('[{"a": {"cvv": "1"}}]', '[\n  {\n    "a": {\n      "cvv": "[redacted]"\n    }\n  }\n]'),
            ("4242424242424242", '"[redacted …4242]"'),
            ('{"4242424242424242": 1}', '{\n  "[redacted …4242]": 1\n}'),
            ('{"a": 1, "a": 2}', '{\n  "a": 1,\n  "a": 2\n}'),  # both are shown
            ("0.10", "0.10"),  # as it was written
            ("1e400", "1e400"),
            ("[NaN, -0]", "[\n  NaN,\n  -0\n]"),
            ("[]", "[]"),
            ("{}", "{}"),
            ("null", "null"),
            ("false", "false"),
            ('"é"', '"é"'),
        ],
    )
    def test_json(self, value: str, shown: str) -> None:
        assert redaction.json_text(value) == shown

    @pytest.mark.parametrize("value", ["", "{", "nope", "[" * 100_000, '{"a":' * 2000 + "1" + "}" * 2000])
    def test_no_json(self, value: str) -> None:
        assert redaction.json_text(value) is None

    def test_headers(self) -> None:
        pairs = [("Set-Cookie", "a=b"), ("X-Auth", "c"), ("Location", "/?token=d"), ("ETag", '"e"')]
        assert [value for _, value in redaction.headers(pairs)] == [
            *(redaction.MASK, redaction.MASK),
            *(f"/?token={redaction.MASK}", '"e"'),
        ]

    @pytest.mark.parametrize(
        "value", ["1 " * 50_000, "a=" * 50_000, "<a " * 50_000, "AB12" * 50_000, "-----BEGIN " * 20_000, '"' * 50_000]
    )
    def test_time_is_linear(self, value: str) -> None:
        """No text makes the patterns walk it again and again."""
        import time

        began = time.process_time()
        redaction.text(value)
        assert time.process_time() - began < 5


# --------------------------------------------------------------------------------------------------------- permissions


@pytest.mark.django_db
class TestPermissions:
    def test_the_body_needs_one_of_its_own(self) -> None:
        ticket = completed(b'{"balance": "17.25"}')
        assert "17.25" not in text_of(staff().get(page_of(ticket)))
        assert "you need the permission" in text_of(staff().get(page_of(ticket)))
        assert "17.25" in text_of(staff("view_response").get(page_of(ticket)))

    def test_nobody_else_sees_anything(self) -> None:
        ticket = completed()
        client = Client()
        client.force_login(UserFactory(is_staff=True))
        for page in (LIST, page_of(ticket), page_of(ticket, "release"), page_of(ticket, "history")):
            assert client.get(page).status_code == 403
            assert Client().get(page).status_code == 302

    @pytest.mark.parametrize(("mine", "other"), [("release", "expire"), ("expire", "release")])
    def test_each_intervention_needs_its_own(self, mine: str, other: str) -> None:
        client = staff(f"{mine}_record")
        ticket = completed()
        page, listed = text_of(client.get(page_of(ticket))), text_of(client.get(LIST))
        assert f'href="{page_of(ticket, mine)}"' in page
        assert page_of(ticket, other) not in page
        assert f'value="{mine}_records"' in listed
        assert f'value="{other}_records"' not in listed
        assert client.post(page_of(ticket, other)).status_code == 403
        client.post(LIST, {"action": f"{other}_records", "_selected_action": [str(ticket.id)], "confirmed": "yes"})
        assert LogEntry.objects.count() == 0
        assert client.post(page_of(ticket, mine)).status_code == 302
        assert LogEntry.objects.count() == 1

    def test_an_intervention_without_the_right_to_view(self) -> None:
        client, user = Client(), UserFactory(is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename="release_record"))
        client.force_login(user)
        assert client.post(page_of(completed(), "release")).status_code == 403

    def test_csrf(self) -> None:
        client = Client(enforce_csrf_checks=True)
        client.force_login(AdminFactory())
        assert client.post(page_of(completed(), "release")).status_code == 403


# ------------------------------------------------------------------------------------------------------- interventions


def nothing(record: Any) -> None:
    pass


@pytest.mark.django_db
class TestInterventions:
    def test_release(self, boss: Client) -> None:
        """The next request runs the work again, and another body is still refused."""
        ticket = completed(key="order-42")
        response = boss.post(page_of(ticket, "release"), follow=True)
        assert "1 record was released." in text_of(response)
        record = row(ticket)
        assert (record.status, record.response_status, record.response_body) == (Status.FREE, None, None)
        again, other = Call(ticket=make_again(ticket)), Call(ticket=make_again(ticket, digest=b"other"))
        assert type(other.open()).__name__ == "Mismatch"
        assert again.run() is not None
        assert again.operation.attempt == 2

    def test_expire(self, boss: Client) -> None:
        """The next request begins anew, whatever its body."""
        ticket = completed(key="order-42")
        response = boss.post(page_of(ticket, "expire"), follow=True)
        assert "1 record has expired." in text_of(response)
        assert "idempotency-label expired" in text_of(response)
        other = Call(ticket=make_again(ticket, digest=b"other"))
        other.run()
        assert other.operation.attempt == 1

    def test_confirmed_first(self, boss: Client) -> None:
        """To look at the page, or to choose the action, changes nothing."""
        ticket = completed()
        page = text_of(boss.get(page_of(ticket, "release")))
        assert "csrfmiddlewaretoken" in page
        assert "charged again" in page
        page = text_of(boss.post(LIST, {"action": "expire_records", "_selected_action": [str(ticket.id)]}))
        assert f'value="{ticket.id}"' in page
        assert row(ticket).status == Status.COMPLETED
        assert LogEntry.objects.count() == 0

    def test_in_the_list(self, boss: Client) -> None:
        """Each outcome is counted and said."""
        tickets = [completed(), completed(), running(lease=60), released()]
        chosen = [str(ticket.id) for ticket in tickets]
        response = boss.post(
            LIST, {"action": "release_records", "_selected_action": chosen, "confirmed": "yes"}, follow=True
        )
        text = text_of(response)
        assert "2 records were released." in text
        assert "1 record was refused, since somebody holds it" in text
        assert "1 record was free or expired already." in text
        assert [row(ticket).status for ticket in tickets] == [Status.FREE, Status.FREE, Status.RUNNING, Status.FREE]

    def test_never_across_pages(self, boss: Client) -> None:
        """A crafted "select all" does what was ticked, and no more."""
        ticked, other = completed(), completed()
        form = {
            "action": "expire_records",
            "_selected_action": [str(ticked.id)],
            "select_across": "1",
            "confirmed": "yes",
        }
        boss.post(LIST, form)
        assert "idempotency-label completed" in text_of(boss.get(page_of(other)))
        assert "idempotency-label expired" in text_of(boss.get(page_of(ticked)))

    @pytest.mark.parametrize("verb", ["release", "expire"])
    def test_audit(self, boss: Client, verb: str) -> None:
        ticket = completed()
        boss.post(page_of(ticket, verb))
        (entry,) = LogEntry.objects.all()
        assert entry.object_id == str(ticket.id)
        assert "It was completed, attempt 1" in entry.change_message
        assert User.objects.get(is_superuser=True) == entry.user
        assert "It was completed, attempt 1" in text_of(boss.get(page_of(ticket, "history")))

    @pytest.mark.parametrize("verb", ["release", "expire"])
    def test_no_audit_no_change(self, verb: str) -> None:
        """They share a transaction."""
        ticket = completed()

        def broken(record: Any) -> None:
            raise RuntimeError

        with pytest.raises(RuntimeError):
            getattr(ORMStore(), verb)(ticket.id, audit=broken)
        assert row(ticket).status == Status.COMPLETED
        assert row(ticket).expires_at > datetime.now(timezone.utc)

    @pytest.mark.parametrize("verb", ["release", "expire"])
    def test_outcomes(self, verb: str) -> None:
        act = getattr(ORMStore(), verb)
        assert act(completed().id, audit=nothing) is Intervention.DONE
        assert act(running().id, audit=nothing) is Intervention.DONE  # the lease has lapsed, and nobody holds the row
        assert act(running(lease=60).id, audit=nothing) is Intervention.HELD
        assert act(running(lease=60, ttl=-60).id, audit=nothing) is Intervention.HELD  # its work still runs
        assert act(completed(ttl=-60).id, audit=nothing) is Intervention.ALREADY
        assert act(make_ticket().id, audit=nothing) is Intervention.GONE

    @pytest.mark.parametrize("verb", ["release", "expire"])
    def test_a_late_owner_changes_nothing(self, verb: str) -> None:
        """Whoever lost the record to its lease finds another owner's token."""
        ticket = running(guarantee=Guarantee.LEASE, lease=0.001)
        owner = row(ticket).owner
        while getattr(ORMStore(), verb)(ticket.id, audit=nothing) is Intervention.HELD:
            pass
        assert row(ticket).owner != owner

    def test_release_keeps_a_dropped_fingerprint_open(self) -> None:
        ticket = released(Ending.DROPPED)
        assert ORMStore().release(ticket.id, audit=nothing) is Intervention.ALREADY
        assert bytes(row(ticket).digest) == b""

    def test_the_store_is_gone(self, boss: Client, monkeypatch: Any) -> None:
        """Said in a sentence, and no error page."""
        from django_idempotency.admin import interventions
        from django_idempotency.errors import StoreUnavailable

        def gone(*args: Any, **kwargs: Any) -> Intervention:
            raise StoreUnavailable

        ticket = completed()
        verb = interventions.VERBS["release"]
        monkeypatch.setitem(interventions.VERBS, "release", replaced(verb, gone))
        admin_of(boss, monkeypatch)
        response = boss.post(
            LIST, {"action": "release_records", "_selected_action": [str(ticket.id)], "confirmed": "yes"}, follow=True
        )
        assert "cannot be reached" in text_of(response)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("verb", ["release", "expire"])
def test_a_held_record_is_refused_at_once(verb: str) -> None:
    """A living worker's row lock says so, whatever its lease; nothing waits for it."""
    ticket = running()
    with held(ticket):
        assert elsewhere(lambda: getattr(ORMStore(), verb)(ticket.id, audit=nothing)) is Intervention.HELD
    assert elsewhere(lambda: getattr(ORMStore(), verb)(ticket.id, audit=nothing)) is Intervention.DONE


@pytest.mark.django_db(transaction=True)
def test_the_page_says_that_somebody_holds_it() -> None:
    """And writes no entry into the log."""
    ticket, client = running(), Client()
    client.force_login(AdminFactory())
    with held(ticket):
        if connection.vendor == "sqlite":  # one writer: sessions and messages would queue behind it
            return
        response = elsewhere(lambda: client.post(page_of(ticket, "release"), follow=True))
    assert "1 record was refused, since somebody holds it" in text_of(response)
    assert LogEntry.objects.count() == 0


@pytest.mark.django_db
def test_another_database(settings: Any) -> None:
    """The admin reads where the store writes."""
    from django.contrib.admin import site

    from django_idempotency.admin import IdempotencyRecordAdmin

    settings.IDEMPOTENCY = {
        "STORES": {
            "default": {"BACKEND": "django_idempotency.stores.orm.ORMStore", "OPTIONS": {"using": "default"}},
            "other": {"BACKEND": "django_idempotency.stores.orm.ORMStore", "OPTIONS": {"using": "elsewhere"}},
        }
    }

    class OtherAdmin(IdempotencyRecordAdmin):
        store_alias = "other"

    assert IdempotencyRecordAdmin(IdempotencyRecord, site).get_store() is stores["default"]
    assert OtherAdmin(IdempotencyRecord, site).get_store().using == "elsewhere"


def make_again(ticket: Ticket, **fields: Any) -> Ticket:
    """Make the ticket of the next request with the same key."""
    from dataclasses import replace

    return replace(ticket, owner=uuid4(), **fields)


def replaced(verb: Any, call: Any) -> Any:
    from dataclasses import replace

    return replace(verb, call=call)


def admin_of(client: Client, monkeypatch: Any, **attributes: Any) -> None:
    """Change the registered admin for a test."""
    from django.contrib.admin import site

    for name, value in attributes.items():
        monkeypatch.setattr(site._registry[IdempotencyRecord], name, value)
