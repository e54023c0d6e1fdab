"""Pytest in a process that gevent has patched, as its workers are: each thread is a greenlet."""

# ruff: noqa: E402 - first of all
from gevent import monkey  # type: ignore[import-untyped]

monkey.patch_all()

import sys
from typing import Any

import pytest


class InGreenlets:
    """Calls at one moment come from greenlets: multiprocessing's pipes do not work once sockets do
    not block.
    """

    @pytest.hookimpl
    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        for cls in {item.cls for item in items if hasattr(item.cls, "elsewhere")}:
            cls.elsewhere = lambda self, store: None


if __name__ == "__main__":
    sys.exit(pytest.main(sys.argv[1:], plugins=[InGreenlets()]))
