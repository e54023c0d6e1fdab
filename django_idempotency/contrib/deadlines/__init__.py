"""Deadlines that come from outside: of a request, by its headers (`middleware`), and of a host, by
an argument (`hosts`).
"""
