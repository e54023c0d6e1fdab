"""The gate of the foreign suites: how it reads reports and judges differences.

`make foreign` runs the suites.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from .foreign.environment import REQUIREMENTS
from .foreign.explained import EXPLAINED
from .foreign.recorded import FILE, Recorded, Stale, facts, load, recorded_of, save
from .foreign.reports import (
    MISSING,
    Difference,
    Explanation,
    Outcome,
    complaints,
    differences,
    read,
    table,
    tally,
)
from .foreign.suites import OURS, SUITES

REPORT = """
<testsuites><testsuite>
  <testcase classname="tests.a" name="test_1" />
  <testcase classname="tests.a" name="test_2"><skipped message="no PostgreSQL" /></testcase>
  <testcase classname="tests.a" name="test_3"><failure message="3 != 1">the trace</failure></testcase>
  <testcase classname="tests.a" name="test_4"><failure message="its body" /></testcase>
  <testcase classname="tests.a" name="test_4"><error message="its teardown" /></testcase>
  <testcase classname="tests.a" name="test_5"><system-out>said</system-out></testcase>
</testsuite></testsuites>
"""
PASSED = Outcome(state="passed")
COUNTED = Outcome(state="failed", message="AssertionError: 3 != 1 : 3 queries executed")
EXPLANATION = Explanation(
    suite="a", mode="keyed", shows="queries executed", reason="counted", tests=("t::1",)
)


def test_each_test_has_its_worst_outcome(tmp_path: Path):
    """A test that failed and whose teardown broke is one test in error; a subtest does not hide its
    test.
    """
    report = tmp_path / "junit.xml"
    report.write_text(REPORT, encoding="utf-8")
    outcomes = read(report)
    assert {test: outcome.state for test, outcome in outcomes.items()} == {
        "tests.a::test_1": "passed",
        "tests.a::test_2": "skipped",
        "tests.a::test_3": "failed",
        "tests.a::test_4": "error",
        "tests.a::test_5": "passed",
    }
    assert outcomes["tests.a::test_3"].message == "3 != 1\nthe trace"
    assert tally(outcomes) == "2 passed, 1 skipped, 1 failed, 1 error"


def test_a_difference_is_another_outcome_or_a_test_that_only_one_run_has():
    """A test that fails with and without us is not a difference; a test that disappeared is one."""
    without = {"t::1": PASSED, "t::2": COUNTED, "t::3": PASSED}
    ours = {"t::1": COUNTED, "t::2": Outcome(state="failed"), "t::4": PASSED}
    assert differences(without, ours) == [
        Difference(test="t::1", without=PASSED, ours=COUNTED),
        Difference(test="t::3", without=PASSED, ours=MISSING),
        Difference(test="t::4", without=MISSING, ours=PASSED),
    ]


def test_an_explained_difference_passes_and_any_other_does_not():
    """An explanation applies to its test, and only while that fails for the reason given."""
    explained = Difference(test="t::1", without=PASSED, ours=COUNTED)
    of_another_test = Difference(test="t::2", without=PASSED, ours=COUNTED)
    for_another_reason = Difference(
        test="t::1", without=PASSED, ours=Outcome(state="failed", message="500 != 201")
    )
    assert complaints([explained], [EXPLANATION]) == []
    assert complaints([explained, of_another_test], [EXPLANATION]) == [
        f"unexplained: {of_another_test}"
    ]
    assert complaints([for_another_reason], [EXPLANATION]) == [
        f"unexplained: {for_another_reason}",
        "explained, but no longer different: t::1",
    ]


def test_an_explanation_without_a_difference_is_a_complaint():
    """The list stays as short as the differences that it explains."""
    assert complaints([], [EXPLANATION]) == ["explained, but no longer different: t::1"]


def test_the_table_is_one_for_the_docs():
    """The table can be pasted."""
    assert (
        table(("suite", "alone"), [("a", "2 passed")])
        == "| suite | alone |\n| --- | --- |\n| a | 2 passed |"
    )


def test_each_explanation_names_a_suite_a_mode_and_a_cause():
    """No explanation can be idle because of a misspelt name, or match any output."""
    names = {suite.name for suite in SUITES}
    assert {(each.suite in names, each.mode in OURS) for each in EXPLAINED} == {(True, True)}
    assert all(each.shows and each.reason and each.tests for each in EXPLAINED)


def test_each_suite_runs_on_its_own_version():
    """The sources that are tested and the package that is installed are one version."""
    pins = set(REQUIREMENTS.read_text(encoding="utf-8").splitlines())
    assert {f"{suite.archive.name}=={suite.archive.version}" for suite in SUITES} <= pins


def test_the_record_has_how_each_test_ended(tmp_path: Path):
    """A run with us is compared with every outcome of the run without us, from a file that names
    only the exceptions.
    """
    without = {"t::1": PASSED, "t::2": Outcome(state="skipped"), "t::3": PASSED}
    save({SUITES[0].name: recorded_of(SUITES[0], without)}, tmp_path / "record.json")
    recorded = load(SUITES[:1], tmp_path / "record.json")[SUITES[0].name]
    assert recorded.outcomes({"t::3", "t::2", "t::1"}) == without
    ours = {**without, "t::2": PASSED, "t::3": COUNTED}
    assert [each.test for each in differences(recorded.outcomes(ours), ours)] == ["t::2", "t::3"]


@pytest.mark.parametrize(
    "ran", [{"t::1"}, {"t::1", "t::2", "t::3"}, {"t::1", "t::4"}], ids=["fewer", "more", "other"]
)
def test_a_record_of_other_tests_is_refused(ran: set[str]):
    """A test that only one of the two runs has is a failure of the gate."""
    recorded = recorded_of(SUITES[0], {"t::1": PASSED, "t::2": PASSED})
    with pytest.raises(Stale, match="2 tests were recorded"):
        recorded.outcomes(ran)


@pytest.mark.parametrize(
    "change",
    [
        {"archive": replace(SUITES[0].archive, sha256="0" * 64)},
        {"arguments": ("-k", "login")},
        {"environment": {"FOREIGN_ATOMIC_REQUESTS": "1"}},
        {"leave_out": ("tests/test_new.py",)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_record_of_another_suite_is_refused(change: dict, tmp_path: Path):
    """Another version, other options or settings: the record says nothing about them."""
    save({SUITES[0].name: recorded_of(SUITES[0], {"t::1": PASSED})}, tmp_path / "record.json")
    with pytest.raises(Stale, match=r"make foreign FOREIGN=--record"):
        load([replace(SUITES[0], **change)], tmp_path / "record.json")


def test_a_record_of_other_pins_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A package that the suites only depend on counts, too."""
    before = facts(SUITES[0])
    pins = tmp_path / "requirements.txt"
    pins.write_text(
        REQUIREMENTS.read_text(encoding="utf-8").replace("Django==", "Django==9"), encoding="utf-8"
    )
    monkeypatch.setattr("tests.proofs.foreign.recorded.REQUIREMENTS", pins)
    assert facts(SUITES[0]) != before


def test_the_record_is_of_suites_that_pass():
    """Every suite is recorded, and none of its tests failed without us."""
    recorded = {
        name: Recorded(**each)
        for name, each in json.loads(FILE.read_text(encoding="utf-8")).items()
    }
    assert set(recorded) == {suite.name for suite in SUITES}
    assert {state for each in recorded.values() for state in each.others.values()} <= {"skipped"}
