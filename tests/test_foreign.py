"""The gate of the foreign suites: how it reads reports and judges differences. `make foreign` runs the suites."""

from __future__ import annotations

from pathlib import Path

from .foreign.environment import REQUIREMENTS
from .foreign.explained import EXPLAINED
from .foreign.reports import MISSING, Difference, Explanation, Outcome, complaints, differences, read, table, tally
from .foreign.suites import MODES, SUITES

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
EXPLANATION = Explanation(suite="a", mode="keyed", shows="queries executed", reason="counted", tests=("t::1",))


def test_each_test_has_its_worst_outcome(tmp_path: Path):
    """A test that failed and whose teardown broke is one test in error; a subtest does not hide its test."""
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
    for_another_reason = Difference(test="t::1", without=PASSED, ours=Outcome(state="failed", message="500 != 201"))
    assert complaints([explained], [EXPLANATION]) == []
    assert complaints([explained, of_another_test], [EXPLANATION]) == [f"unexplained: {of_another_test}"]
    assert complaints([for_another_reason], [EXPLANATION]) == [
        f"unexplained: {for_another_reason}",
        "explained, but no longer different: t::1",
    ]


def test_an_explanation_without_a_difference_is_a_complaint():
    """The list stays as short as the differences that it explains."""
    assert complaints([], [EXPLANATION]) == ["explained, but no longer different: t::1"]


def test_the_table_is_one_for_the_docs():
    """The table can be pasted."""
    assert table(("suite", "alone"), [("a", "2 passed")]) == "| suite | alone |\n| --- | --- |\n| a | 2 passed |"


def test_each_explanation_names_a_suite_a_mode_and_a_cause():
    """No explanation can be idle because of a misspelt name, or match any output."""
    names = {suite.name for suite in SUITES}
    assert {(each.suite in names, each.mode in MODES[1:]) for each in EXPLAINED} == {(True, True)}
    assert all(each.shows and each.reason and each.tests for each in EXPLAINED)


def test_each_suite_runs_on_its_own_version():
    """The sources that are tested and the package that is installed are one version."""
    pins = set(REQUIREMENTS.read_text(encoding="utf-8").splitlines())
    assert {f"{suite.archive.name}=={suite.archive.version}" for suite in SUITES} <= pins
