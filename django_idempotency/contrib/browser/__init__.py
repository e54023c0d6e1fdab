"""A script for applications that use `fetch`: it keeps each operation's key, and retries under
it.
"""
