"""Binds the engine to a Django project: which store, whose ticket, on or off."""
