"""`make demo`: a payments API under retries, races and a killed worker, watched from outside over real HTTP."""
