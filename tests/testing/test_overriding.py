"""override_idempotency(): wherever a test may put it."""

from __future__ import annotations

import asyncio
import inspect
import unittest
from collections.abc import AsyncIterator, Iterator
from typing import Any, ClassVar

import pytest
from django.test import SimpleTestCase

from django_idempotency.runtime import switch
from django_idempotency.testing import override_idempotency


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    yield
    assert switch.overrides == ()


def test_it_is_a_context_manager() -> None:
    """It may be entered again while it is open."""
    off = override_idempotency(enabled=False)
    with off, override_idempotency(enabled=True):
        assert switch.enabled()
        with off:
            assert not switch.enabled()
        assert switch.enabled()
    assert switch.enabled()


def test_an_exception_passes() -> None:
    with pytest.raises(KeyError), override_idempotency(enabled=False):
        raise KeyError


def test_it_decorates_a_function() -> None:
    """Name, arguments and result are the function's; recursion works."""

    @override_idempotency(enabled=False)
    def count(number: int) -> list[bool]:
        """Count down."""
        return [switch.enabled(), *(count(number - 1) if number else ())]

    assert count(2) == [False] * 3
    assert (count.__name__, count.__doc__) == ("count", "Count down.")
    assert switch.enabled()


def test_it_decorates_a_coroutine_function() -> None:
    """It is open while the coroutine runs, not only while it is made."""

    @override_idempotency(enabled=False)
    async def ask() -> bool:
        await asyncio.sleep(0)
        return switch.enabled()

    assert inspect.iscoroutinefunction(ask)
    assert asyncio.run(ask()) is False


def run(case: type[unittest.TestCase]) -> dict[str, bool]:
    """Run a class of tests, and return what each part of it has seen."""
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    assert not result.errors
    assert not result.failures
    assert result.testsRun
    seen: dict[str, bool] = case.seen  # type: ignore[attr-defined]
    return seen


class Seeing(SimpleTestCase):
    """Records where it is on."""

    seen: ClassVar[dict[str, bool]]

    @classmethod
    def setUpClass(cls) -> None:
        cls.seen = {"class": switch.enabled()}
        super().setUpClass()

    def setUp(self) -> None:
        self.seen["setup"] = switch.enabled()

    def test(self) -> None:
        self.seen["test"] = switch.enabled()

    @override_idempotency(enabled=True)
    def test_method(self) -> None:
        self.seen["method"] = switch.enabled()


def test_it_decorates_a_test_case() -> None:
    """It holds from before setUpClass() until after the last test; a method may override it."""

    @override_idempotency(enabled=False)
    class Off(Seeing):
        pass

    assert run(Off) == {"class": False, "setup": False, "test": False, "method": True}
    assert switch.enabled()


def test_subclasses_of_a_test_case() -> None:
    """They inherit it, or override it; their base is not changed."""

    @override_idempotency(enabled=False)
    class Off(Seeing):
        pass

    class Inheriting(Off):
        pass

    @override_idempotency(enabled=True)
    class On(Off):
        pass

    off = {"class": False, "setup": False, "test": False}
    on = dict.fromkeys(off, True)
    assert run(Inheriting) == {**off, "method": True}
    assert run(On) == {**on, "method": True}
    assert run(Off) == {**off, "method": True}
    assert run(Seeing) == {**on, "method": True}


def test_a_class_that_cannot_be_set_up() -> None:
    """Nothing is left behind."""

    @override_idempotency(enabled=False)
    class Broken(unittest.TestCase):
        @classmethod
        def setUpClass(cls) -> None:
            raise OSError

        def test(self) -> None: ...

    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Broken).run(result)
    assert len(result.errors) == 1


def test_another_class_is_refused() -> None:
    """Nothing would be set up, so the error says what to type."""

    class TestCharges:
        pass

    with pytest.raises(TypeError, match=r'usefixtures\("idempotency_disabled"\)'):
        override_idempotency(enabled=False)(TestCharges)


def test_a_generator_is_refused() -> None:
    """It would run outside of the override."""

    def fixture() -> Iterator[None]:
        yield

    async def afixture() -> AsyncIterator[None]:
        yield

    generators: list[Any] = [fixture, afixture]
    for generator in generators:
        with pytest.raises(TypeError, match="Open it inside, by `with`"):
            override_idempotency(enabled=False)(generator)


def test_other_bases_of_a_subclass_are_set_up() -> None:
    """A decorated class without setUpClass() does not hide another base's."""
    was_set_up = []

    @override_idempotency(enabled=False)
    class Decorated(SimpleTestCase):
        pass

    class Other(SimpleTestCase):
        @classmethod
        def setUpClass(cls) -> None:
            super().setUpClass()
            was_set_up.append(switch.enabled())

    class Tests(Decorated, Other):
        def test(self) -> None:
            pass

    loaded = unittest.TestLoader().loadTestsFromTestCase(Tests)
    assert loaded.run(unittest.TestResult()).wasSuccessful()
    assert was_set_up == [False]
