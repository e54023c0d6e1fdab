"""`on_takeover`: what the project says about a request or a call whose earlier owner crashed.

A policy or a function asks for it.
"""
