"""Charges, refunds and payouts."""
