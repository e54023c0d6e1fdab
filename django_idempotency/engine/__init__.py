"""One call under a key: claim, run, settle.

It applies the rules to a store and does not depend on Django. Only `threads`, for async work, knows
that a store may use Django's connections.
"""
