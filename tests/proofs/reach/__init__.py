"""Run what the stores promise against every server that can be had on this machine: `python -m
tests.proofs.reach`.
"""
