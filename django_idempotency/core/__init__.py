"""Ring 0: the decisions. Standard library only: no Django, no clock, no I/O, no driver."""
