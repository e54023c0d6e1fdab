"""Helpers for threads, tasks and forked children."""
