"""Pytest in a process that gevent has patched, as its workers are: each thread is a greenlet."""

# ruff: noqa: E402 - first of all
from gevent import monkey  # type: ignore[import-untyped]

monkey.patch_all()

import sys

import pytest

if __name__ == "__main__":
    sys.exit(pytest.main(sys.argv[1:]))
