"""Tests of what becomes of a message."""
