"""Results of functions as bytes, and back with their types."""
