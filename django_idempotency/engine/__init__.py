"""One call under a key: claim, run, settle.

It applies the rules to a store and does not depend on Django.
"""
