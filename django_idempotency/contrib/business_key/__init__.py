"""A key on the row that the work makes, UNIQUE: a second row is impossible, whatever the store of
records has lost.

    class Charge(OncePerKey):
        amount = models.IntegerField()

The row's key names the record of the request, call or step that made it, so the admin finds one by
the other. An app of its own, so that models are imported where Django imports them: from `.models`.
"""
