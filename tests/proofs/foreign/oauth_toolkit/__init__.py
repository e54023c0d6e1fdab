"""What django-oauth-toolkit's tests import and its distribution leaves out.

It is laid beside them, as `tests`.

The originals are not in the index, so these are ours: settings, presets and fixtures, as the tests
expect them.
"""
