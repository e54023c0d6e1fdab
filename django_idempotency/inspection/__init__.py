"""What people are shown of a record, in the admin and in a terminal: the same facts, words and masks."""
