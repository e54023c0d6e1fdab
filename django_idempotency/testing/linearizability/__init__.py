"""Is there an order in which the responses that clients got make sense?

Checked a key at a time, as Wing and Gong do.

    history = History()
    history.send(lambda: client.post(…), key="order-17", client="anna")   # from many threads
    assert_linearizable(history)

`calls.py` is what a client saw, `model.py` what one key may do, `search.py` looks for an order,
`timeline.py` draws what has none. Nothing here knows Django, except that `history.py` reads the
headers of responses.
"""

from .history import History
from .model import Answer, Call
from .search import Violation, assert_linearizable, violations

__all__ = ["Answer", "Call", "History", "Violation", "assert_linearizable", "violations"]
