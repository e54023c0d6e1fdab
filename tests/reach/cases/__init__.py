"""Tests that pytest runs only when `tests.reach` names them: they take groups of servers, and minutes."""
