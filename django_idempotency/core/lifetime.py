"""How long a key may be used elsewhere: for a lifetime from its first use, however many attempts
there are.

A provider remembers a key for a while, and then does the work again. So whatever may send under a
key that was used before (`derive()`, a step, an undo, an outgoing call) asks `remembered()` first,
and beyond the lifetime leaves the operation to a person. An age is the difference of two instants
of one clock: that of the database with the row.

The first use of a derived key is the first claim of its operation; of a step, its start; of an
undo, the moment in which it was first called; of a call, its first attempt. Later attempts do not
move it. What proves that nothing was done does: a refusal, after which another request may come,
and a person who releases what was held.

How long a response is kept (`ttl`) is another time, which this one does not shorten.
"""

from __future__ import annotations

from datetime import timedelta

#: What is sent under a key now may arrive this much later.
MARGIN = timedelta(seconds=60)


def remembered(age: timedelta, *, lifetime: timedelta, margin: timedelta = MARGIN) -> bool:
    """Will a provider that remembers a key for `lifetime` still know one of this age when what is
    sent now arrives?
    """
    return age <= lifetime - margin
