"""The decisions. Standard library only: no Django, no clock, no I/O, no driver."""
