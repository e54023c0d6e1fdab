"""Read by mypy alone, and strictly: an error that it no longer finds is one
(`warn_unused_ignores`).
"""
