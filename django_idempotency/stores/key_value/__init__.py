"""A record as one packed and signed value, for stores that keep values under keys, outside of any
database of Django's.
"""
