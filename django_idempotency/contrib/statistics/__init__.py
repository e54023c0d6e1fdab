"""A page of the admin with figures over an hour, a day and a week."""
