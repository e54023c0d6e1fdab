"""Every event of a key, kept after its record: who, when, and how it ended.

A separate app, with its own tables.

Importing this loads no model.
"""
