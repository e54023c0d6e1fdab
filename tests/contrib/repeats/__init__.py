"""Tests of counting replays."""
