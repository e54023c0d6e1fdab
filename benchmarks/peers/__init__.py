"""This package beside others for Django, in one run: what each costs, and what happens to a charge
under each.
"""
