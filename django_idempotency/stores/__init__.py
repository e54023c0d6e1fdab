"""Where records live. A store takes or returns a row, in one atomic step, and never judges."""
