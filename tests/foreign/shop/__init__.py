"""A shop on django-oscar, as its documentation sets one up, with this package's middleware last. Run by `shop_run.py`."""
