"""The list: its speed at any table size, and its search."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_idempotency import conf
from django_idempotency.admin import listing
from django_idempotency.core.at_rest import hashed_scope
from django_idempotency.core.conclusions import Ending, WorkResult
from django_idempotency.core.failures import failed_with
from django_idempotency.core.records import CANCELLATIONS, HELD, Guarantee
from django_idempotency.core.states import RecordState
from django_idempotency.models import IdempotencyRecord
from django_idempotency.scopes import hashed, qualified
from django_idempotency.testing.tickets import NOW
from tests.admin.helpers import LIST, admin_of, completed, released, running, staff, text_of
from tests.stores.helpers import Call, atomic_ticket
from tests.support.factories import UserFactory


def keys(response: Any) -> list[str]:
    return [record.key for record in response.context["cl"].result_list]


@pytest.mark.django_db
class TestList:
    def test_nothing_is_counted(self, boss: Client) -> None:
        """The list is one statement on our table, by expiry, with a limit, and without the
        response.
        """
        completed()
        with CaptureQueriesContext(connection) as queries:
            boss.get(LIST)
        ours = [query["sql"] for query in queries if "idempotency_record" in query["sql"]]
        assert len(ours) == 1
        assert not [query["sql"] for query in queries if "COUNT(" in query["sql"].upper()]
        assert "LIMIT 51" in ours[0]
        assert re.search(r"ORDER BY .{0,40}purge_at. DESC", ours[0])
        assert "response_body" not in ours[0]

    @pytest.mark.parametrize(
        "query",
        ["?state=completed", "?state=held", "?guarantee__exact=atomic", "?o=-5", "?q=k"],
    )
    def test_a_filter_costs_one_statement_more(self, boss: Client, query: str) -> None:
        """A filter adds one statement, which asks the index where the first 20,000 rows of the
        window end.
        """
        completed()
        with CaptureQueriesContext(connection) as queries:
            assert boss.get(f"{LIST}{query}").status_code == 200
        ours = [query["sql"] for query in queries if "idempotency_record" in query["sql"]]
        assert len(ours) == 2
        assert not [sql for sql in ours if "COUNT(" in sql.upper()]

    def test_a_filter_reads_part_of_the_window_and_reports_it(
        self, boss: Client, monkeypatch: Any
    ) -> None:
        """Rows after the first SCANNED are not examined."""
        first, *_ = [completed(ttl=ttl) for ttl in (1000, 2000, 3000)]
        monkeypatch.setattr(listing, "SCANNED", 2)
        response = boss.get(f"{LIST}?state=completed")
        assert len(keys(response)) == 2
        assert first.key not in keys(response)
        assert "Choose a narrower one" in text_of(response)
        assert "Choose a narrower one" not in text_of(boss.get(LIST))

    def test_pages_know_only_their_neighbours(self, boss: Client, monkeypatch: Any) -> None:
        """Each page knows whether another follows; the last page does not offer one."""
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
        """The list shows unexpired records, unless another window is chosen."""
        soon, later, past = completed(ttl=600), completed(ttl=86400 * 3), completed(ttl=-60)
        windows = {
            "": {soon, later},
            "hour": {soon},
            "week": {soon, later},
            "past": {past},
            "all": {soon, later, past},
        }
        for window, tickets in windows.items():
            assert set(keys(boss.get(f"{LIST}?kept={window}"))) == {
                ticket.key for ticket in tickets
            }, window

    @pytest.mark.parametrize("order", ["1", "-3", "2.1", "x"])
    def test_no_other_order(self, boss: Client, order: str) -> None:
        """The list has no other order: it would have to sort the table."""
        tickets = [
            completed(ttl=ttl, key=key) for ttl, key in [(3000, "b"), (2000, "a"), (1000, "c")]
        ]
        assert keys(boss.get(f"{LIST}?o={order}")) == [ticket.key for ticket in tickets]

    @pytest.mark.parametrize(
        "lookup", ["response_body__contains=a", "key__startswith=a", "response_headers__contains=a"]
    )
    def test_no_other_lookup(self, boss: Client, lookup: str) -> None:
        """No other lookup is allowed: the number of hits would reveal hidden data."""
        assert boss.get(f"{LIST}?{lookup}").status_code == 400

    @pytest.mark.parametrize(
        "query", ["kept=x", "state=x%00", "state=9", "o=x", "q=%00", "q=a%00+b"]
    )
    def test_odd_filters(self, boss: Client, query: str) -> None:
        assert boss.get(f"{LIST}?{query}", follow=True).status_code == 200

    def test_sorted_by_the_last_change(self, boss: Client) -> None:
        """The newest completion first; what runs goes by the end of its lease."""
        first = completed(ttl=9000)
        runs = running(lease=600, ttl=8000)
        last = completed(ttl=1000)
        for order, expected in (("-5", [runs, last, first]), ("5", [first, last, runs])):
            assert keys(boss.get(f"{LIST}?o={order}")) == [ticket.key for ticket in expected]
        assert "sorted descending" in text_of(boss.get(f"{LIST}?o=-5"))

    def test_every_state_can_be_chosen(self, boss: Client) -> None:
        """The filter finds the records with that label, and no other; together they are all."""
        completed()
        released()
        running(lease=60)
        running(guarantee=Guarantee.LEASE)
        released(WorkResult.DROPPED)
        completed(ttl=-60)
        running(guarantee=Guarantee.LEASE, ttl=-60)
        running(lease=60, ttl=-60)
        for outcome in (HELD, *CANCELLATIONS):
            completed(outcome=outcome)
        found = 0
        for state in RecordState:
            shown = text_of(boss.get(f"{LIST}?kept=all&state={state.value}"))
            labels = re.findall(r'idempotency-label (\w+)"', shown)
            assert set(labels) == {state.value}
            found += len(labels)
        assert found == IdempotencyRecord.objects.count() == 11

    def test_labels(self, boss: Client) -> None:
        """Each status is derived from the stored one together with its deadlines."""
        completed()
        released()
        running()
        running(lease=60)
        abandoned = running(guarantee=Guarantee.LEASE)
        released(WorkResult.DROPPED)
        completed(ttl=-60)
        labels = set(re.findall(r'idempotency-label (\w+)"', text_of(boss.get(f"{LIST}?kept=all"))))
        assert labels == {"completed", "failed", "free", "running", "abandoned", "expired"}
        assert re.search(
            r"for \d", text_of(boss.get(f"{LIST}?q={abandoned.scope}+{abandoned.key}"))
        )

    def test_users_are_named(self, boss: Client) -> None:
        """By one query per page; linked where the viewer may see users; a scope of nobody stays as
        it is.
        """
        users = [UserFactory(), UserFactory()]
        for user in users:
            completed(scope=f"user:auth.user:{user.pk}")
        completed(scope=f"realm:acme/user:auth.user:{users[0].pk}")
        for scope in (
            "user:auth.user:0",
            "user:auth.user:x",
            f"user:auth.user:{10**30}",
            f"scope:x/user:auth.user:{users[0].pk}",
            f"database:b/user:auth.user:{users[0].pk}",
            "anonymous",
        ):
            completed(scope=scope)
        with CaptureQueriesContext(connection) as queries:
            page = text_of(boss.get(LIST))
        names = [sql for query in queries if "IN (" in (sql := query["sql"]) and "auth_user" in sql]
        assert len(names) == 1
        assert page.count(f"{users[0].get_username()}</a>)") == 2
        assert f"/admin/auth/user/{users[1].pk}/change/" in page
        assert f"({users[0].get_username()})" in text_of(staff().get(LIST))


@pytest.mark.django_db
class TestSearch:
    def test_scope_and_key_go_to_the_primary_key(self, boss: Client) -> None:
        """A search by scope and key finds the record inside or outside of the window and of the
        filters.
        """
        ticket = completed(scope="user:auth.user:7", key="order-42", ttl=-60)
        completed()
        with CaptureQueriesContext(connection) as queries:
            response = boss.get(f"{LIST}?q=user:auth.user:7+order-42&state=free")
        assert keys(response) == [ticket.key]
        assert not [query["sql"] for query in queries if "scope' =" in query["sql"]]

    def test_spaces_in_either(self, boss: Client) -> None:
        completed(scope="our shop", key="order 42")
        completed()
        assert keys(boss.get(f"{LIST}?q=our+shop+order+42")) == ["order 42"]

    def test_id(self, boss: Client) -> None:
        ticket, _ = completed(), completed()
        assert keys(boss.get(f"{LIST}?q={ticket.id}")) == [ticket.key]

    def test_the_key_hash_of_a_log_line(self, boss: Client) -> None:
        """It finds its record outside of the window, too, by the primary key; on MariaDB in the
        window.
        """
        ticket, gone = completed(), completed(ttl=-60)
        completed()
        assert keys(boss.get(f"{LIST}?q={ticket.id.hex[:12]}")) == [ticket.key]
        assert keys(boss.get(f"{LIST}?q={str(ticket.id)[:23].upper()}")) == [ticket.key]
        assert keys(boss.get(f"{LIST}?q={gone.id.hex[:12]}&kept=past")) == [gone.key]
        if connection.vendor != "mysql":
            with CaptureQueriesContext(connection) as queries:
                assert keys(boss.get(f"{LIST}?q={gone.id.hex[:12]}")) == [gone.key]
            assert not [query["sql"] for query in queries if "LIKE" in query["sql"]]
        # Too short: it would find others'.
        assert keys(boss.get(f"{LIST}?q={ticket.id.hex[:11]}")) == []

    def test_a_key_that_looks_like_a_key_hash(self, boss: Client) -> None:
        completed(key="912278e8a313")
        assert keys(boss.get(f"{LIST}?q=912278e8a313")) == ["912278e8a313"]

    def test_the_id_of_a_request(self, boss: Client) -> None:
        """What a response names in `Original-Request` finds its record, whether the client gave it
        or we did.
        """
        theirs, ours, _ = completed(request_id="req_1"), completed(), completed()
        assert keys(boss.get(f"{LIST}?q=req_1")) == [theirs.key]
        assert keys(boss.get(f"{LIST}?q={ours.owner}")) == [ours.key]
        assert keys(boss.get(f"{LIST}?q={theirs.owner}")) == []

    @pytest.mark.parametrize("key", ["", "+order-42"])
    def test_a_scope_that_is_stored_as_its_hash_is_found_by_its_name(
        self, boss: Client, key: str
    ) -> None:
        """A hashed scope is found by its name, with or without a key, in a realm or in none; no
        table has the name.
        """
        for realm in (None, "acme"):
            stored = completed(
                key="order-42", scope=qualified(hashed("scope:guest 7"), realm=realm)
            ).scope
            typed = qualified("scope:guest 7", realm=realm).replace(" ", "+")
            found = boss.get(f"{LIST}?q={typed}{key}").context["cl"].result_list
            assert [record.scope for record in found] == [stored]

    def test_the_name_of_a_user(self, boss: Client) -> None:
        """A user's name finds their records, in any realm; with a key it goes to the primary
        key.
        """
        alice, bob = UserFactory(username="alice o'hara"), UserFactory(username="bob")
        mine = completed(key="order-1", scope=f"user:auth.user:{alice.pk}")
        theirs = completed(
            key="order-2", scope=qualified(f"user:auth.user:{alice.pk}", realm="acme")
        )
        completed(key="order-1", scope=f"user:auth.user:{bob.pk}")
        gone = completed(key="order-9", scope=f"user:auth.user:{alice.pk}", ttl=-60)
        found = boss.get(f"{LIST}?q=alice+o'hara")
        assert set(keys(found)) == {mine.key, theirs.key}
        assert f"is the user user:auth.user:{alice.pk}." in text_of(found)
        assert keys(boss.get(f"{LIST}?q=alice+o'hara+order-9")) == [gone.key]
        assert keys(boss.get(f"{LIST}?q=carol")) == []

    def test_a_name_under_hashed_scopes(self, boss: Client, settings: Any) -> None:
        """With HASH_KEYS a name, or a scope, finds what is stored as its hash."""
        settings.IDEMPOTENCY = {"HASH_KEYS": True}
        alice = UserFactory(username="alice")
        scope = f"user:auth.user:{alice.pk}"
        completed(scope=hashed_scope(conf.derive_secret(), scope), key="#hmac:of-order-1")
        for term in ("alice", scope):
            assert keys(boss.get(f"{LIST}?q={term}")) == ["#hmac:of-order-1"]

    @pytest.mark.parametrize(
        ("term", "found"),
        [
            ("status:201", {"made", "redirected"}),
            ("status:2xx", {"made", "redirected"}),
            ("status:500", {"failed"}),
            ("status:4xx", set()),
            ("status:x", set()),
            ("status:²xx", set()),
            ("status:٢٠١", set()),
            ("status:2XX", {"made", "redirected"}),
            ("error:TimeoutError", {"failed"}),
            ("error:Timeout", set()),
            ("location:/charges/7/", {"redirected"}),
            ("location:/charges/", set()),  # not by parts: its page masks what is secret in it
            ("status:201 redirected", {"redirected"}),
            ("made status:500", set()),
            ("status:201 location:/charges/7/", {"redirected"}),
            ("status:", set()),
        ],
    )
    def test_what_became_of_it(self, boss: Client, term: str, found: set[str]) -> None:
        """A status, the class of an error and the address of what was made are searched in the
        window, with any name.
        """
        completed(key="made")
        completed(
            key="redirected", headers=(("Content-Type", "text/html"), ("Location", "/charges/7/"))
        )
        operation = Call(ticket=atomic_ticket(key="failed")).operation
        operation.open()
        operation.settle(Ending(WorkResult.FAILED, failed_with(TimeoutError(), at=NOW)))
        released(key="released")
        assert set(keys(boss.get(LIST, {"q": term}))) == found

    def test_a_search_says_where_it_looked(self, boss: Client) -> None:
        """A search of the window says so, also if it finds nothing; one by primary key does not."""
        ticket = completed(scope="user:auth.user:7")
        says = "Only the window that is chosen was searched"
        assert says in text_of(boss.get(f"{LIST}?q=nobody"))
        assert says not in text_of(boss.get(f"{LIST}?q=user:auth.user:7+{ticket.key}"))
        assert says not in text_of(boss.get(LIST))

    def test_a_key_or_a_scope_alone_stays_in_the_window(self, boss: Client) -> None:
        alive, dead = (
            completed(key="order-42", scope="a"),
            completed(key="order-42", scope="b", ttl=-60),
        )
        for term in ("order-42", "a"):
            assert keys(boss.get(f"{LIST}?q={term}")) == [alive.key]
        found = boss.get(f"{LIST}?q=order-42&kept=all").context["cl"].result_list
        assert {record.scope for record in found} == {alive.scope, dead.scope}


@pytest.mark.django_db
@pytest.mark.skipif("connection.vendor != 'postgresql'", reason="reads PostgreSQL's plans")
class TestScale:
    @pytest.fixture
    def many_rows(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                """INSERT INTO django_idempotency_record SELECT gen_random_uuid(), 'user:' || n % 50, 'key-' || n, 'POST',
                '/charges/', 'atomic', '\\x00', 2, gen_random_uuid(), gen_random_uuid(), 1, now(), now(), now(), now() + n * interval '4 s',
                now() + n * interval '4 s', '', '', 201, '[]', '\\x00' FROM generate_series(1, 20000) n"""
            )
            cursor.execute("ANALYZE django_idempotency_record")

    @pytest.mark.parametrize(
        "query",
        [
            "",
            "?kept=all",
            "?kept=hour",
            "?p=40",
            "?state=completed",
            "?q=key-19999",
            "?state=free",
        ],
    )
    def test_the_list_walks_the_index(
        self, many_rows: None, boss: Client, monkeypatch: Any, query: str
    ) -> None:
        """The list neither scans nor sorts the table."""
        monkeypatch.setattr(listing, "SCANNED", 1000)  # the table is twenty times that
        with CaptureQueriesContext(connection) as queries:
            boss.get(f"{LIST}{query}")
        for statement in [
            query["sql"] for query in queries if "idempotency_record" in query["sql"]
        ]:
            with connection.cursor() as cursor:
                cursor.execute("EXPLAIN " + statement.replace("%", "%%"))
                plan = "\n".join(line for (line,) in cursor.fetchall())
            assert "purge_at" in plan, plan
            assert re.search(r"Index (Only )?Scan", plan), plan
            assert "Seq Scan" not in plan, plan
            # A filter leaves so few rows that they may be sorted.
            if not re.search("q=|state=free", query):
                assert "->  Sort" not in plan, plan
