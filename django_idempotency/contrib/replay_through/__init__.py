"""Decorators of a project that may be run again before a replay: the setting REPLAY_THROUGH."""
