"""`make demo`: a payments API under retries, races and a killed worker, observed from outside over
real HTTP.
"""
