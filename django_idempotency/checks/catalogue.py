"""Every check: its code, what it says, and what to type. `docs/reference/checks.md` is this table.

E: what is asked for cannot work. W: it works, and may surprise.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from django.core.checks import CheckMessage, Error
from django.core.checks import Warning as Caution

PREFIX = "django_idempotency"

_OURS = '"django_idempotency.middleware.IdempotencyMiddleware"'
_SILENCE = 'SILENCED_SYSTEM_CHECKS = ["django_idempotency.%(code)s"]'

#: Code → (message, hint).
CATALOGUE: dict[str, tuple[str, str]] = {
    # ---- Settings
    "E001": (
        "IDEMPOTENCY is %(found)s, not a dict.",
        'Type IDEMPOTENCY = {"TTL": 86400}, or leave it out: every setting has a default.',
    ),
    "E002": (
        'IDEMPOTENCY["%(name)s"] is no setting.',
        'Did you mean "%(close)s"? There are %(known)s.',
    ),
    "E003": (
        'IDEMPOTENCY["%(name)s"] = %(value)s makes no sense.',
        '%(expected)s. Type "%(name)s": %(default)s, or leave it out.',
    ),
    "E004": (
        'IDEMPOTENCY["%(name)s"] = %(value)s cannot be imported: %(error)s.',
        'Type the dotted path of a function, such as "%(name)s": "shop.idempotency.%(function)s".',
    ),
    "E005": (
        'IDEMPOTENCY["%(name)s"], %(lease)s s, is not shorter than IDEMPOTENCY["TTL"], %(ttl)s s.',
        'Type "TTL": 86400, or a "%(name)s" below %(ttl)s.',
    ),
    "E006": (
        'IDEMPOTENCY["HEADER"] = %(value)s cannot carry a key.',
        'Type "HEADER": "Idempotency-Key", or another name of letters, digits and hyphens that HTTP itself does not use.',
    ),
    "E007": (
        'IDEMPOTENCY["%(name)s"] holds %(found)s.',
        (
            'Type text or bytes that are not empty: "DERIVE_SECRET": os.environ["DERIVE_SECRET"], '
            '"DERIVE_SECRET_FALLBACKS": [the earlier ones]; or leave both out, and SECRET_KEY serves.'
        ),
    ),
    "E043": (
        'IDEMPOTENCY["%(name)s"] = %(value)s cannot select: %(problem)s.',
        "Type %(fix)s.",
    ),
    "E063": (
        'IDEMPOTENCY["REALM"] is "django_idempotency.realms.schema", which cannot tell the tenant: %(problem)s.',
        (
            'Type DATABASES["%(alias)s"]["ENGINE"] = "django_tenants.postgresql_backend", or "REALM": the dotted path of a '
            "function of your own."
        ),
    ),
    "E064": (
        'IDEMPOTENCY["SCOPE"] is "django_idempotency.scopes.session", which cannot tell guests apart: %(problem)s.',
        'Type %(fix)s, or "SCOPE": the dotted path of a function of your own.',
    ),
    "W068": (
        "%(found)s, and no realm is set: a key of one tenant meets the same key of another, and gets its response.",
        (
            'Type "REALM": "django_idempotency.realms.%(realm)s", or the dotted path of a function that names the tenant. '
            "If there is one tenant only, or all requests and calls run inside django_idempotency.realm(…), "
            f"type {_SILENCE}."
        ),
    ),
    "E044": (
        "The environment has IDEMPOTENCY_DISABLED=%(value)s, which says neither yes nor no: what is guarded raises.",
        "Type IDEMPOTENCY_DISABLED=1 to run without idempotency, IDEMPOTENCY_DISABLED=0 or nothing to have it.",
    ),
    "E068": (
        'IDEMPOTENCY["EXEMPT"] cannot be read: %(problem)s.',
        'Type "EXEMPT": ["namespace:admin", "module:shop.webhooks", "path:/webhooks/"], or leave it out.',
    ),
    # ---- Stores
    "E010": (
        'IDEMPOTENCY["STORES"] is malformed: %(problem)s.',
        (
            'Type "STORES": {"default": {"BACKEND": "django_idempotency.stores.orm.ORMStore", '
            '"OPTIONS": {"using": "default"}}}.'
        ),
    ),
    "E011": (
        'IDEMPOTENCY["STORES"]["%(alias)s"] has no usable BACKEND: %(error)s.',
        'Type "BACKEND": "django_idempotency.stores.orm.ORMStore", or the dotted path of another BaseStore.',
    ),
    "E012": (
        'IDEMPOTENCY["STORES"]["%(alias)s"] cannot be built: %(error)s.',
        'Type in "OPTIONS" what %(backend)s takes: %(takes)s.',
    ),
    "E013": (
        'IDEMPOTENCY["STORE"] = %(value)s, and IDEMPOTENCY["STORES"] has no such alias.',
        'Type "STORE": "%(close)s", or add the alias to "STORES".',
    ),
    "E014": (
        'IDEMPOTENCY["STORES"]["%(alias)s"] uses the database %(using)s, which DATABASES does not have.',
        'Type "OPTIONS": {"using": "%(close)s"}, or add the database.',
    ),
    "E015": (
        'IDEMPOTENCY["STORES"]["%(alias)s"] uses the database "%(using)s", whose kind is "%(vendor)s".',
        'Type "OPTIONS": {"using": …} with a database of PostgreSQL, MariaDB, MySQL or SQLite.',
    ),
    "E016": (
        'IDEMPOTENCY["GUARANTEE"] is "atomic", which the store "%(alias)s" cannot keep: it joins no transaction.',
        'Type "GUARANTEE": "lease", or "STORE": the alias of an ORMStore.',
    ),
    "E017": (
        'DATABASES["%(using)s"] has "AUTOCOMMIT": False, and records live there: nobody else would see a claim.',
        'Take "AUTOCOMMIT": False out of DATABASES["%(using)s"], and open transactions by atomic().',
    ),
    "E018": (
        'IDEMPOTENCY["STORES"]["%(alias)s"] keeps its records in the cache "%(cache)s", which CACHES does not have.',
        (
            'Type "OPTIONS": {"cache": "%(close)s"}, or add CACHES["%(cache)s"] = '
            '{"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:6379/1"}.'
        ),
    ),
    "E019": (
        (
            'IDEMPOTENCY["STORES"]["%(alias)s"] keeps its records in CACHES["%(cache)s"], '
            "which is no cache of django-redis: %(problem)s."
        ),
        (
            'Type CACHES["%(cache)s"] = {"BACKEND": "django_redis.cache.RedisCache", '
            '"LOCATION": "redis://127.0.0.1:6379/1"}, or "OPTIONS": {"cache": …} with one that is.'
        ),
    ),
    "E040": (
        'IDEMPOTENCY["STORES"]["%(alias)s"] is a %(backend)s, and its driver %(driver)s is not installed.',
        'Type python -m pip install "django-idempotency[%(extra)s]".',
    ),
    "E041": (
        'IDEMPOTENCY["STORES"]["%(alias)s"] has %(value)s as its "%(name)s", which cannot be: %(problem)s.',
        'Type "%(name)s": "%(close)s"%(added)s.',
    ),
    "E042": (
        (
            'IDEMPOTENCY["STORES"]: "%(alias)s" and "%(other)s" keep different records behind one front, %(front)s, '
            "where the copies of one would answer for the other."
        ),
        (
            'Type "front": "front-%(other)s" in "%(other)s", and add "front-%(other)s": '
            '{"BACKEND": "django_idempotency.stores.redis.RedisStore", '
            '"OPTIONS": {"cache": "%(cache)s", "prefix": "idempotency-%(other)s"}} to "STORES".'
        ),
    ),
    "E045": (
        'IDEMPOTENCY["OUTBOX_PUBLISHER"] = %(value)s cannot publish: %(problem)s.',
        (
            'Type "OUTBOX_PUBLISHER": "shop.broker.Publisher", the dotted path of a class with a method publish(message), '
            "or of a function publish(message)."
        ),
    ),
    "E046": (
        'IDEMPOTENCY["OUTBOX_PUBLISHER"] is set, and the outbox is not installed: there is no table.',
        'Add "django_idempotency.outbox" to INSTALLED_APPS, and type python manage.py migrate.',
    ),
    "W003": (
        (
            'IDEMPOTENCY["STORES"]["%(alias)s"] is a MemoryStore: other processes know nothing of its records, '
            "and a restart forgets them."
        ),
        (
            'Type "BACKEND": "django_idempotency.stores.orm.ORMStore". '
            f"For tests, or where one process is all there is, {_SILENCE}."
        ),
    ),
    # ---- Middleware
    "W072": (
        (
            "IdempotencyMiddleware stands before %(other)s, whose process_view may refuse a request: "
            "a record would be replayed before that."
        ),
        f'Move {_OURS} below "%(other)s" in MIDDLEWARE; the last line is best.',
    ),
    "E021": (
        "MIDDLEWARE has IdempotencyMiddleware %(count)s times.",
        f"Keep {_OURS} once, as the last line.",
    ),
    "E022": (
        "IdempotencyMiddleware stands before %(other)s, which says whose a key is.",
        f'Move {_OURS} below "%(other)s" in MIDDLEWARE; the last line is best.',
    ),
    "W073": (
        (
            "IdempotencyMiddleware stands before %(other)s, whose process_exception may answer for a view that raised: "
            "its writes would be kept as if it had succeeded."
        ),
        f'Move {_OURS} below "%(other)s" in MIDDLEWARE; the last line is best.',
    ),
    # ---- Routes
    "E030": (
        '%(view)s is async, and no transaction can cover it: it cannot be "atomic".',
        'Put @idempotent(guarantee="lease") on it, or @idempotency_exempt.',
    ),
    "E031": (
        "%(view)s has IdempotentViewMixin behind %(other)s in its bases, where it guards nothing.",
        "Put it first: class %(name)s(IdempotentViewMixin, …).",
    ),
    "E032": (
        "%(view)s has IdempotentViewMixin, and is no view of Django REST framework.",
        "Take the mixin out, and put @idempotent() on the class.",
    ),
    "E033": (
        (
            "The as_view() of %(view)s stands inside another decorator in the URLconf, which IdempotencyMiddleware must not skip. "
            "A request with a key raises."
        ),
        "Put IdempotentViewMixin first in the bases of %(name)s, or @idempotency_exempt on it.",
    ),
    "E034": (
        "%(view)s has @idempotent() below @api_view, inside the transaction of ATOMIC_REQUESTS.",
        "Swap the two lines: @idempotent() above @api_view.",
    ),
    "E072": (
        (
            "%(view)s stands inside another decorator in the URLconf, around which ATOMIC_REQUESTS opens a transaction. "
            "Its lease would be settled inside of that, so a request with a key raises LeaseInTransaction."
        ),
        (
            'Put the decorator on the class: @method_decorator(…, name="dispatch"). On a function, put @idempotent() above '
            "the decorator if it asks for no right; or put @transaction.non_atomic_requests above all of them."
        ),
    ),
    "W076": (
        (
            "%(view)s stands inside another decorator in the URLconf, around which ATOMIC_REQUESTS opens a transaction. The "
            "claim of a request with a key joins it: duplicates wait for its end, and a crash leaves no trace of an attempt."
        ),
        (
            'Put the decorator on the class: @method_decorator(…, name="dispatch"). On a function, put @idempotent() above '
            f"the decorator if it asks for no right; or {_SILENCE}."
        ),
    ),
    "E035": (
        "The policy of %(view)s and IDEMPOTENCY contradict each other: %(error)s",
        "Type both fields in the policy of %(view)s, or change the setting.",
    ),
    "E036": (
        'The policy of %(view)s asks for the store "%(alias)s", which IDEMPOTENCY["STORES"] does not have.',
        'Type store="%(close)s", or add the alias to "STORES".',
    ),
    "E037": (
        'The policy of %(view)s is "atomic", which the store "%(alias)s" cannot keep: it joins no transaction.',
        'Type guarantee="lease", or store= the alias of an ORMStore.',
    ),
    "E038": (
        "The attribute idempotency of %(view)s is %(found)s, not a Policy.",
        "Type idempotency = Policy(required=True, …) in the class.",
    ),
    "W077": (
        (
            "IdempotencyMiddleware refuses the replays of %(view)s%(others)s: before the view stands %(layer)s, which cannot be "
            "asked again."
        ),
        (
            "Put @idempotent() below it, directly on the view or on the class, so that it is asked each time; or type "
            f'"AUTHORIZE_REPLAY": "dotted.path" in IDEMPOTENCY, and ask there; or put @idempotency_exempt on the view; or {_SILENCE}.'
        ),
    ),
    "E067": (
        "%(view)s has async handlers, which Django REST framework does not await: a request with a key raises.",
        'Take the APIView of adrf and type idempotency = Policy(guarantee="lease"), or make the handlers sync.',
    ),
    "E069": (
        "%(view)s cannot be guarded, and a request to it raises: %(problem)s",
        "Put @idempotent() where the message says.",
    ),
    "E070": (
        (
            'IDEMPOTENCY["REQUIRED"] is set, and IdempotencyMiddleware cannot guard operations of django-ninja: %(count)s, '
            "%(view)s for one. A request to one of them raises."
        ),
        "Put @idempotent() on each function, directly below the line that makes an operation of it, or @idempotency_exempt.",
    ),
    "E071": (
        (
            '%(view)s is an async view of REST framework: no transaction can cover it, so it cannot be "atomic", and '
            "IdempotencyMiddleware cannot guard it. A request with a key raises."
        ),
        (
            'Put IdempotentViewMixin first in its bases and type idempotency = Policy(guarantee="lease"), '
            "or put @idempotency_exempt on it."
        ),
    ),
    "E082": (
        (
            'IDEMPOTENCY["REQUIRED"] is set, and IdempotencyMiddleware cannot guard %(view)s, a GraphQL view: a replay would skip '
            "what its resolvers ask for. A POST to it raises."
        ),
        "Put @idempotent(authorize_replay=…) on the class, or @idempotency_exempt.",
    ),
    "W084": (
        (
            "IdempotencyMiddleware does not guard %(view)s, a GraphQL view: a replay would skip what its resolvers ask for. "
            "A mutation with a key runs unguarded."
        ),
        f"Put @idempotent(authorize_replay=…) on the class, or @idempotency_exempt; or {_SILENCE}.",
    ),
    "W085": (
        (
            "%(other)s has a process_exception that may answer for a view that raised, outside the guard of "
            "%(view)s%(others)s: a replay has Django's own response, and what a view wrote before it raised "
            "an exception of the project's own is rolled back."
        ),
        (
            "Put what it answers into a decorator below @idempotent(), or for REST framework into EXCEPTION_HANDLER: there "
            f"the guard sees the response. If it never answers for these views, {_SILENCE}."
        ),
    ),
    "W071": (
        'IDEMPOTENCY["EXEMPT"] has %(entry)s, and no route of the URLconf is like that.',
        'Type what python manage.py idempotency_routes shows, such as "%(close)s", or take the entry out.',
    ),
    "W074": (
        (
            "IdempotencyMiddleware does not guard operations of django-ninja, whose authentication stands behind it: "
            "%(count)s run unguarded, %(view)s for one."
        ),
        (
            "Put @idempotent() on each function that must not run twice, directly below the line that makes an operation "
            f"of it, and @idempotency_exempt on the others; or {_SILENCE}."
        ),
    ),
    "E047": (
        '%(view)s is an async function, and no transaction can cover it: it cannot be "atomic".',
        'Type @idempotent_function(guarantee="lease", …).',
    ),
    "W064": (
        "%(count)s guarded functions are named %(name)s in the store: a call of one may be answered with another's result.",
        (
            'Type key_prefix="…", another for each. If they are twins of one function, such as an async one, '
            f"{_SILENCE}."
        ),
    ),
    "W066": (
        (
            "%(name)s is a method of the model %(model)s, keyed by all its arguments, and self is none of them: "
            "a call on one row is answered with the result of another row's."
        ),
        'Pass what tells the rows apart as an argument, such as the primary key, and type key="…" with its name.',
    ),
    # ---- Databases
    "W001": (
        (
            'The database "%(other)s" is not covered by "atomic", whose records are in "%(using)s": '
            "what a view writes there is not undone with it."
        ),
        (
            'If it is a replica, type DATABASES["%(other)s"]["TEST"] = {"MIRROR": "%(using)s"}. Where a view writes there, '
            f'type guarantee="lease" in its policy. Then {_SILENCE}.'
        ),
    ),
    "W002": (
        'DATABASE_ROUTERS keep the table of django_idempotency out of the database "%(using)s", where a store looks for it.',
        (
            'Let allow_migrate("%(using)s", "django_idempotency") return True in your router, or type '
            '"OPTIONS": {"using": …} with a database where it does.'
        ),
    ),
    "W069": (
        (
            "django_idempotency is in TENANT_APPS and not in SHARED_APPS: a keyed request to the public schema finds no "
            "table, and gets 503."
        ),
        (
            'Add "django_idempotency" to SHARED_APPS, too, and run manage.py migrate_schemas --shared. If nothing guarded '
            f"runs in the public schema, type {_SILENCE}."
        ),
    ),
    "W079": (
        (
            'DATABASES["%(using)s"] takes its connections from a pool of its own ("%(engine)s"), which the heartbeat of "lease" '
            "cannot leave: while requests hold all of it, the leases of living owners end, and their work runs again."
        ),
        (
            'Type "ENGINE": "django.db.backends.postgresql" and "OPTIONS": {"pool": True}, whose pool it leaves; or let the pool '
            f"have two connections more than a process has threads, and {_SILENCE}."
        ),
    ),
    "W065": (
        (
            'The outbox is in the database "%(using)s", whose transactions are "%(level)s": a relay does not see there what '
            "is committed while it looks, so messages of one key may change places."
        ),
        'Take "isolation_level" out of DATABASES["%(using)s"]["OPTIONS"]: Django\'s own default is READ COMMITTED.',
    ),
    # ---- check --deploy
    "E050": (
        'The table "%(table)s" is missing in the database "%(using)s".',
        "Type python manage.py migrate django_idempotency --database=%(using)s",
    ),
    "E051": (
        'The Redis of IDEMPOTENCY["STORES"]["%(alias)s"] is version %(version)s, and the store needs 5 or later.',
        "Type redis-cli INFO server to see which one answers, and move the records to Redis 5 or later.",
    ),
    "E052": (
        'The table "%(table)s" of IDEMPOTENCY["STORES"]["%(alias)s"] is missing in DynamoDB.',
        "Type python manage.py create_idempotency_table --store=%(alias)s",
    ),
    "E053": (
        'IDEMPOTENCY["STORES"]["%(alias)s"] and its table in DynamoDB do not fit: %(error)s',
        'Type in "OPTIONS" the names that the table has ("key_attr", "sort_key_attr", "attributes"), or another "table".',
    ),
    "W050": (
        'The database "%(using)s" does not answer, so its settings were not checked: %(error)s.',
        "Start it, then type python manage.py check --deploy again.",
    ),
    "W051": (
        (
            'PostgreSQL ("%(using)s") does not look whether a client is still there while a statement runs: '
            "the key of a dead worker stays locked until its statement ends."
        ),
        (
            'Add "-c client_connection_check_interval=1s" to DATABASES["%(using)s"]["OPTIONS"]["options"], '
            "or in SQL: ALTER ROLE %(user)s SET client_connection_check_interval = '1s'."
        ),
    ),
    "W052": (
        'PostgreSQL ("%(using)s") lets a transaction be idle for ever: a worker that hangs in its view holds its key.',
        (
            'Add "-c idle_in_transaction_session_timeout=60s" to DATABASES["%(using)s"]["OPTIONS"]["options"] '
            "(longer than your slowest call to a provider), "
            "or in SQL: ALTER ROLE %(user)s SET idle_in_transaction_session_timeout = '60s'."
        ),
    ),
    "W053": (
        (
            'PostgreSQL ("%(using)s") gives a silent client up only after %(idle)s s: '
            "so long the key of a vanished host stays locked."
        ),
        (
            'Add "-c tcp_keepalives_idle=30 -c tcp_keepalives_interval=10 -c tcp_keepalives_count=3" to '
            'DATABASES["%(using)s"]["OPTIONS"]["options"], '
            "or in SQL, for each: ALTER ROLE %(user)s SET tcp_keepalives_idle = 30."
        ),
    ),
    "W054": (
        (
            'DATABASES["%(using)s"]["OPTIONS"] does not say when a silent PostgreSQL server is given up: '
            "a worker waits for it until TCP does, which may take hours."
        ),
        (
            'Type DATABASES["%(using)s"]["OPTIONS"].update(keepalives_idle=30, keepalives_interval=10, '
            "keepalives_count=3, tcp_user_timeout=30_000)."
        ),
    ),
    "W078": (
        (
            'A process may open %(needed)s connections to DATABASES["%(using)s"] (%(pool)s, and two outside of it: '
            'for the heartbeat, and for settles that are tried again), and PostgreSQL grants "%(user)s" %(limit)s.'
        ),
        (
            'Type DATABASES["%(using)s"]["OPTIONS"]["pool"] = {"min_size": 1, "max_size": %(fits)s} or less, since all your '
            "processes share what is granted; or raise max_connections, or the limit in ALTER ROLE %(user)s CONNECTION LIMIT."
        ),
    ),
    "W055": (
        (
            '%(server)s ("%(using)s") lets a transaction be idle for %(limit)s: '
            "so long a worker that hangs, or whose host vanished, holds its key."
        ),
        (
            'Type DATABASES["%(using)s"]["OPTIONS"]["init_command"] = "SET SESSION %(variable)s=60" '
            '(longer than your slowest call to a provider), and "CONN_HEALTH_CHECKS": True beside OPTIONS.'
        ),
    ),
    "W056": (
        (
            '%(server)s ("%(using)s") has innodb_rollback_on_timeout=ON: a lock timeout that a view swallows undoes half '
            'of its transaction, the lock on its key included, and "atomic" cannot see it.'
        ),
        "Type innodb_rollback_on_timeout=OFF under [mysqld] in my.cnf, and restart the server.",
    ),
    "W057": (
        (
            'DATABASES["%(using)s"]["OPTIONS"] has no %(missing)s: '
            "a worker waits for a server that vanished until TCP gives up, which may take hours."
        ),
        (
            'Type DATABASES["%(using)s"]["OPTIONS"].update(connect_timeout=5, read_timeout=60, write_timeout=60), '
            "with a read_timeout above your slowest statement."
        ),
    ),
    "W058": (
        'The records are in SQLite ("%(using)s"), which has one writer: requests with different keys queue for it.',
        (
            'Type DATABASES["%(using)s"]["ENGINE"] = "django.db.backends.postgresql" for more than one worker; '
            f"if one is enough, {_SILENCE}."
        ),
    ),
    "W059": (
        "The environment has IDEMPOTENCY_DISABLED=%(value)s: every retry runs again.",
        "Type IDEMPOTENCY_DISABLED=0, or take it out of the environment of whatever serves people.",
    ),
    "W060": (
        'The store "%(alias)s" (%(backend)s) does not answer, so its server was not checked: %(error)s.',
        (
            "Start it, or let this host and its credentials ask for the server's settings; "
            "then type python manage.py check --deploy again."
        ),
    ),
    "W061": (
        (
            'The Redis of IDEMPOTENCY["STORES"]["%(alias)s"] evicts keys when its %(maxmemory)s are full '
            '(maxmemory-policy is "%(policy)s"): the work of an evicted record runs again.'
        ),
        (
            "Type redis-cli CONFIG SET maxmemory-policy noeviction, and the same in redis.conf "
            "(or in the parameters of a managed service). If a cache needs eviction, put the records into another Redis."
        ),
    ),
    "W062": (
        (
            'The Redis of IDEMPOTENCY["STORES"]["%(alias)s"] writes no append-only file (appendonly is "no"): '
            "a restart forgets records, and their work runs again."
        ),
        (
            "Type redis-cli CONFIG SET appendonly yes, and the same in redis.conf. "
            f"If the service keeps them in another way, {_SILENCE}."
        ),
    ),
    "W063": (
        (
            'DynamoDB deletes nothing from the table "%(table)s" of IDEMPOTENCY["STORES"]["%(alias)s"], '
            "so it grows for ever: its TTL is off."
        ),
        "Type python manage.py create_idempotency_table --store=%(alias)s",
    ),
}


def finding(code: str, **facts: Any) -> CheckMessage:
    """Make the check message of a code."""
    message, hint = CATALOGUE[code]
    kind = Error if code.startswith("E") else Caution
    facts["code"] = code
    return kind(message % facts, hint=hint % facts, id=f"{PREFIX}.{code}")


def closest(name: str, known: Iterable[Any]) -> str:
    """Return what may have been meant."""
    return next(iter(get_close_matches(name, map(str, known), n=1, cutoff=0)), "default")


def shown(value: Any) -> str:
    """Return a value's repr, shortened, on one line."""
    try:
        return " ".join(_SHORT.repr(value).split())
    except Exception:  # noqa: BLE001 - a repr of somebody else's
        return a(value)


def told(error: BaseException) -> str:
    """Return what an error says, shortened, on one line: ours say what to type."""
    try:
        text = " ".join(str(error).split()).rstrip(".")
    except Exception:  # noqa: BLE001 - a repr of somebody else's
        text = ""
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__


def a(value: Any) -> str:
    """Name the kind of a value, which may be a secret."""
    return "None" if value is None else f"a value of type {type(value).__name__}"


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80
