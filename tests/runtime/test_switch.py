"""On or off: what the environment may say, what an override changes, and the one warning."""

from __future__ import annotations

import logging
import threading

import pytest

from django_idempotency.errors import ConfigurationError
from django_idempotency.runtime import switch
from django_idempotency.testing import override_idempotency

YES = ["1", "y", "yes", "t", "true", "on", "Y", "YES", "True", "tRuE", "ON"]
NO = ["0", "n", "no", "f", "false", "off", "N", "NO", "False", "OFF", ""]
NEITHER = ["2", "maybe", "yes please", " 1", "1 ", "none", "enabled", "10", "ja", "\u0131"]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin without the variable, and with the warning still to come."""
    monkeypatch.delenv(switch.VARIABLE, raising=False)
    monkeypatch.setattr(switch, "_warned", False)


@pytest.mark.parametrize("raw", YES)
def test_yes(monkeypatch: pytest.MonkeyPatch, raw: str) -> None:
    """The switch is off, in every spelling."""
    monkeypatch.setenv(switch.VARIABLE, raw)
    assert not switch.enabled()


@pytest.mark.parametrize("raw", NO)
def test_no(monkeypatch: pytest.MonkeyPatch, raw: str) -> None:
    """The switch is on; an empty variable counts as not set."""
    monkeypatch.setenv(switch.VARIABLE, raw)
    assert switch.enabled()


def test_nothing() -> None:
    """The switch is on by default."""
    assert switch.enabled()


@pytest.mark.parametrize("raw", NEITHER)
def test_neither(monkeypatch: pytest.MonkeyPatch, raw: str) -> None:
    """An unknown word is an error each time, and the error says what to type."""
    monkeypatch.setenv(switch.VARIABLE, raw)
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="Type IDEMPOTENCY_DISABLED=1"):
            switch.enabled()


def test_the_environment_is_read_live(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the meaning of a word is cached."""
    for raw, expected in [("1", False), ("0", True), ("1", False), ("", True)]:
        monkeypatch.setenv(switch.VARIABLE, raw)
        assert switch.enabled() is expected


@pytest.mark.parametrize("raw", ["1", "0", "maybe"])
@pytest.mark.parametrize("enabled", [True, False])
def test_an_override_wins(monkeypatch: pytest.MonkeyPatch, raw: str, enabled: bool) -> None:
    """An override wins over the environment, and only while it is open."""
    monkeypatch.setenv(switch.VARIABLE, raw)
    with override_idempotency(enabled=enabled):
        assert switch.enabled() is enabled
    assert switch.overrides == ()


def test_overrides_nest() -> None:
    """The innermost override wins; when it is left, the one around it does."""
    with override_idempotency(enabled=False):
        with override_idempotency(enabled=True):
            assert switch.enabled()
            with override_idempotency(enabled=False):
                assert not switch.enabled()
            assert switch.enabled()
        assert not switch.enabled()
    assert switch.enabled()


def test_overrides_may_end_in_any_order() -> None:
    """Overrides of two threads may: each removes its own."""
    first, second = override_idempotency(enabled=False), override_idempotency(enabled=True)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert switch.enabled()
    second.__exit__(None, None, None)
    assert switch.overrides == ()


def test_an_override_ends_with_an_exception() -> None:
    with pytest.raises(KeyError), override_idempotency(enabled=False):
        raise KeyError
    assert switch.enabled()


def test_an_override_is_for_the_process() -> None:
    """The threads of a live server see it, including those that started earlier."""
    seen, ask = [], threading.Event()

    def serve() -> None:
        assert ask.wait(10)
        seen.append(switch.enabled())

    server = threading.Thread(target=serve)
    server.start()
    with override_idempotency(enabled=False):
        ask.set()
        server.join(10)
    assert seen == [False]


def test_one_warning_a_process(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The warning is a log record: with PYTHONWARNINGS=error, `warnings.warn` would break a
    request.
    """
    monkeypatch.setenv(switch.VARIABLE, "1")
    with caplog.at_level(logging.WARNING, "django_idempotency"):
        for _ in range(3):
            switch.warn_once()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "IDEMPOTENCY_DISABLED=1" in record.getMessage()


def test_no_warning_for_an_override(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An override is deliberate, so it does not use up the one warning."""
    monkeypatch.setenv(switch.VARIABLE, "1")
    with override_idempotency(enabled=False):
        switch.warn_once()
    assert caplog.records == []
    switch.warn_once()
    assert len(caplog.records) == 1
