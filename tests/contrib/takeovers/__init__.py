"""Tests of `on_takeover`."""
