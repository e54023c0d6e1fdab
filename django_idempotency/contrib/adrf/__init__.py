"""Async REST framework views: those of adrf, under a lease."""
