"""`mode="observe"`: the view runs unguarded, and what a guard would have done is reported."""
