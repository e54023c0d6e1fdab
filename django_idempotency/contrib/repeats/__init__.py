"""Counts the replays and the mismatches of each key: the setting COUNT_REPLAYS."""
