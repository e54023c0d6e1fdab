"""Exceptions of a guarded function that are stored, and raised again: `keep_exceptions` and
`undo_on` ask for it.
"""
