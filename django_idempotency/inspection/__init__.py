"""How a record is displayed, in the admin and in a terminal: the same facts, words and masks."""
