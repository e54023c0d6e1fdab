"""A shop on django-oscar, set up as in its documentation, with this package's middleware last.

Run by `shop_run.py`.
"""
