"""In greenlets.

A timeout of gevent's is raised wherever a greenlet waits, also in the middle of COMMIT.
"""

from __future__ import annotations

import time

import gevent  # type: ignore[import-untyped]
import pytest
from django.db import connection

from django_idempotency.core.rules import Busy
from tests.stores.helpers import Call, effects

#: The COMMIT of this transaction takes a second.
SLOW_COMMIT = """
    CREATE FUNCTION pg_temp.doze() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_sleep(1); RETURN NULL; END $$;
    CREATE TEMPORARY TABLE dozing (id int);
    CREATE CONSTRAINT TRIGGER doze AFTER INSERT ON dozing
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION pg_temp.doze();
    INSERT INTO dozing VALUES (1)
"""


@pytest.mark.django_db(transaction=True)
def test_a_timeout_in_commit() -> None:
    """The outcome is unknown, so nothing is released; the retry finds out, and whatever it finds,
    there is one effect.
    """
    call = Call()
    call.open()
    call.work()
    with connection.cursor() as cursor:
        cursor.execute(SLOW_COMMIT)
    used = connection.connection
    with pytest.raises(gevent.Timeout), gevent.Timeout(0.3):
        call.settle()
    assert (call.listener.events, connection.in_atomic_block) == (["claimed"], False)
    assert connection.connection is not used
    while isinstance(Call().run(), Busy):
        time.sleep(0.05)
    assert effects() == 1
