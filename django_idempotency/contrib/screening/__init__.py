"""Asked of a new key: does its client make too many, and was the same sent with another key?

`fresh_keys=…`, `suspect=…`.
"""
