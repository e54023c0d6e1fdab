"""The same requests with the database a network away: there, trips are what counts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection

from .delaying import Proxy, delayed
from .entry_points import EntryPoints
from .measuring import Case, Effort, interleaved
from .table import Row, Section

#: Seconds each way, as between two data centres of a region.
EACH_WAY = 0.0005
#: The waits that the design allows beyond the bare view, and beyond authentication.
FIRST, KNOWN = 3, 1
OTHER_LABEL = {"label": "other"}


def distance(effort: Effort) -> Section:
    with away() as proxy:
        return measured(EntryPoints("distant"), proxy, effort)


@contextmanager
def away() -> Iterator[Proxy]:
    """Let the default connection, and no other program, go through the proxy."""
    place = connection.settings_dict
    near = place["HOST"], place["PORT"]
    with delayed(near[0], int(near[1]), EACH_WAY) as proxy:
        connection.close()
        place["HOST"], place["PORT"] = "127.0.0.1", str(proxy.port)
        try:
            yield proxy
        finally:
            connection.close()
            place["HOST"], place["PORT"] = near


def measured(entry_points: EntryPoints, proxy: Proxy, effort: Effort) -> Section:
    path = "/rest/guarded/"
    known, running = entry_points.used(path), entry_points.running(path)
    trip = Case("SELECT 1", lambda: nothing)
    bare = entry_points.case("bare DRF view", "/rest/bare/")
    authenticated = entry_points.case("authentication alone", "/rest/authenticated/")
    first = entry_points.case("first request, atomic, less the bare view", path, entry_points.fresh)
    replay = entry_points.case("replay, less authentication", path, lambda: known)
    busy = entry_points.case("busy (409), less authentication", path, lambda: running, status=409)
    mismatch = entry_points.case(
        "mismatch (422), less authentication", path, lambda: known, status=422, body=OTHER_LABEL
    )
    bases = {first: bare, replay: authenticated, busy: authenticated, mismatch: authenticated}
    cases = [bare, authenticated, *bases]
    timings = interleaved([trip, *cases], effort)
    counts = {case: trips(case, proxy) for case in cases}
    rows = []
    for case in cases:
        values, most = timings.ratios(case.name, trip.name), None
        if case in bases:
            less = timings.ratios(bases[case].name, trip.name)
            values = [whole - part for whole, part in zip(values, less, strict=True)]
            if connection.vendor == "postgresql":
                most = counts[bases[case]] + (FIRST if case is first else KNOWN)
        rows.append(
            Row(
                name=case.name,
                values=values,
                unit="trips",
                statements=counts[case],
                most_statements=most,
            )
        )
    shortest = min(timings[trip.name]) * 1000
    return Section(
        title=f"Through DRF with token auth, {EACH_WAY * 1000:g} ms each way; the driver's "
        f"SELECT 1 = 1 ({shortest:.2f} ms)",
        rows=rows,
    )


def nothing() -> None:
    """Send the shortest statement, without Django's part."""
    connection.ensure_connection()
    with connection.connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        cursor.fetchone()


def trips(case: Case, proxy: Proxy) -> int:
    """Count the waits of one act, on the wire."""
    act = case.prepare()
    before = proxy.trips()
    act()
    return proxy.trips() - before
