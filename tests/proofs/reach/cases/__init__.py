"""Tests that pytest runs only when `tests.proofs.reach` names them: they take groups of servers,
and minutes.
"""
