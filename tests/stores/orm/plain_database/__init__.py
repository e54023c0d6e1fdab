"""A Django backend as another project might have it: PostgreSQL underneath, but with less than
PostgreSQL can do.
"""
