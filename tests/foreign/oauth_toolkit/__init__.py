"""What django-oauth-toolkit's tests import, and its distribution leaves out. It is laid beside them, as `tests`.

Its own is not public in the index, so this is ours: settings, presets and fixtures, as its tests ask for them.
"""
