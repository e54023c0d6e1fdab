"""Every check: its code, its message, and what to type. `docs/reference/checks.md` is this table.

E: the configuration cannot work. W: it works, but may surprise.
"""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage

from ..stores.check_messages import PREFIX, STORE_CHECKS, a, closest, message, shown, told
from ..stores.check_messages import SILENCE as _SILENCE

__all__ = ["CATALOGUE", "PREFIX", "a", "closest", "finding", "shown", "told"]

_OURS = '"django_idempotency.middleware.IdempotencyMiddleware"'

#: Code → (message, hint).
CATALOGUE: dict[str, tuple[str, str]] = {
    # ---- Settings
    "E001": (
        "IDEMPOTENCY is %(found)s, not a dict.",
        'Type IDEMPOTENCY = {"TTL": 86400}, or leave it out: every setting has a default.',
    ),
    "E002": (
        'IDEMPOTENCY["%(name)s"] is not a setting.',
        'Did you mean "%(close)s"? The settings are %(known)s.',
    ),
    "E003": (
        'IDEMPOTENCY["%(name)s"] = %(value)s is not valid.',
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
            'Type non-empty text or bytes: "DERIVE_SECRET": os.environ["DERIVE_SECRET"], '
            '"DERIVE_SECRET_FALLBACKS": [the earlier ones]; or leave both out to use SECRET_KEY.'
        ),
    ),
    "E043": (
        'IDEMPOTENCY["%(name)s"] = %(value)s cannot select: %(problem)s.',
        "Type %(fix)s.",
    ),
    "E063": (
        'IDEMPOTENCY["REALM"] is "django_idempotency.realms.schema", which cannot determine the tenant: %(problem)s.',
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
        "%(found)s, and no realm is set: a tenant that sends the same key as another gets the other's response.",
        (
            'Type "REALM": "django_idempotency.realms.%(realm)s", or the dotted path of a function that names the tenant. '
            "If there is only one tenant, or all requests and calls run inside django_idempotency.realm(…), "
            f"type {_SILENCE}."
        ),
    ),
    "E044": (
        "The environment has IDEMPOTENCY_DISABLED=%(value)s, which means neither yes nor no: guarded code raises.",
        "Type IDEMPOTENCY_DISABLED=1 to disable idempotency, IDEMPOTENCY_DISABLED=0 or nothing to enable it.",
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
    "E014": STORE_CHECKS["E014"],
    "E015": STORE_CHECKS["E015"],
    "E016": (
        'IDEMPOTENCY["GUARANTEE"] is "atomic", which the store "%(alias)s" cannot keep: it joins no transaction.',
        'Type "GUARANTEE": "lease", or "STORE": the alias of an ORMStore.',
    ),
    "E017": (
        'DATABASES["%(using)s"] has "AUTOCOMMIT": False, and records live there: no other connection would see a claim.',
        'Take "AUTOCOMMIT": False out of DATABASES["%(using)s"], and open transactions with atomic().',
    ),
    "E018": STORE_CHECKS["E018"],
    "E019": STORE_CHECKS["E019"],
    "E040": (
        'IDEMPOTENCY["STORES"]["%(alias)s"] is a %(backend)s, and its driver %(driver)s is not installed.',
        'Type python -m pip install "django-idempotency[%(extra)s]".',
    ),
    "E041": (
        'IDEMPOTENCY["STORES"]["%(alias)s"] has %(value)s as its "%(name)s", which is not possible: %(problem)s.',
        'Type "%(name)s": "%(close)s"%(added)s.',
    ),
    "E042": (
        (
            'IDEMPOTENCY["STORES"]: "%(alias)s" and "%(other)s" keep different records behind one front, %(front)s, '
            "so copies of one's records would be replayed for the other."
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
        'IDEMPOTENCY["OUTBOX_PUBLISHER"] is set, but the outbox is not installed: there is no table.',
        'Add "django_idempotency.outbox" to INSTALLED_APPS, and type python manage.py migrate.',
    ),
    "W003": (
        (
            'IDEMPOTENCY["STORES"]["%(alias)s"] is a MemoryStore: other processes do not see its records, '
            "and a restart loses them."
        ),
        (
            'Type "BACKEND": "django_idempotency.stores.orm.ORMStore". '
            f"For tests, or if there is only one process, {_SILENCE}."
        ),
    ),
    # ---- Middleware
    "W072": (
        (
            "IdempotencyMiddleware comes before %(other)s, whose process_view may refuse a request: "
            "a record would be replayed without asking it."
        ),
        f'Move {_OURS} below "%(other)s" in MIDDLEWARE; the last line is best.',
    ),
    "E021": (
        "MIDDLEWARE lists IdempotencyMiddleware %(count)s times.",
        f"Keep {_OURS} once, as the last line.",
    ),
    "E022": (
        "IdempotencyMiddleware comes before %(other)s, which identifies the owner of a key.",
        f'Move {_OURS} below "%(other)s" in MIDDLEWARE; the last line is best.',
    ),
    "W073": (
        (
            "IdempotencyMiddleware comes before %(other)s, whose process_exception may respond for a view that raised: "
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
        "%(view)s has IdempotentViewMixin after %(other)s in its bases, where it guards nothing.",
        "Put it first: class %(name)s(IdempotentViewMixin, …).",
    ),
    "E032": (
        "%(view)s has IdempotentViewMixin, but is not a Django REST framework view.",
        "Take the mixin out and put @idempotent() on the class.",
    ),
    "E033": (
        (
            "The as_view() of %(view)s is wrapped in another decorator in the URLconf, which IdempotencyMiddleware must not skip. "
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
            "%(view)s is wrapped in another decorator in the URLconf, around which ATOMIC_REQUESTS opens a transaction. "
            "Its lease would be settled inside that transaction, so a request with a key raises LeaseInTransaction."
        ),
        (
            'Put the decorator on the class: @method_decorator(…, name="dispatch"). On a function, put @idempotent() above '
            "the decorator if it does not check access; or put @transaction.non_atomic_requests above all of them."
        ),
    ),
    "W076": (
        (
            "%(view)s is wrapped in another decorator in the URLconf, around which ATOMIC_REQUESTS opens a transaction. The "
            "claim of a request with a key joins it: duplicates wait until it ends, and a crash leaves no trace of an attempt."
        ),
        (
            'Put the decorator on the class: @method_decorator(…, name="dispatch"). On a function, put @idempotent() above '
            f"the decorator if it does not check access; or {_SILENCE}."
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
            "IdempotencyMiddleware refuses to replay %(view)s%(others)s: %(layer)s comes before the view, and cannot be "
            "asked again."
        ),
        (
            "Put @idempotent() below it, directly on the view or on the class, so that it is asked each time; or type "
            f'"AUTHORIZE_REPLAY": "dotted.path" in IDEMPOTENCY, and ask there; or put @idempotency_exempt on the view; or {_SILENCE}.'
        ),
    ),
    "E067": (
        "%(view)s has async handlers, which Django REST framework does not await: a request with a key raises.",
        'Use the APIView of adrf and type idempotency = Policy(guarantee="lease"), or make the handlers sync.',
    ),
    "E069": (
        "%(view)s cannot be guarded, and a request to it raises: %(problem)s",
        "Put @idempotent() where the message says.",
    ),
    "E070": (
        (
            'IDEMPOTENCY["REQUIRED"] is set, and IdempotencyMiddleware cannot guard django-ninja operations: %(count)s, '
            "such as %(view)s. A request to one of them raises."
        ),
        "Put @idempotent() on each function, directly below the decorator that makes it an operation, or @idempotency_exempt.",
    ),
    "E071": (
        (
            '%(view)s is an async REST framework view: no transaction can cover it, so it cannot be "atomic", and '
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
            "the checks of its resolvers. A POST to it raises."
        ),
        "Put @idempotent(authorize_replay=…) on the class, or @idempotency_exempt.",
    ),
    "W084": (
        (
            "IdempotencyMiddleware does not guard %(view)s, a GraphQL view: a replay would skip the checks of its resolvers. "
            "A mutation with a key runs unguarded."
        ),
        f"Put @idempotent(authorize_replay=…) on the class, or @idempotency_exempt; or {_SILENCE}.",
    ),
    "W085": (
        (
            "%(other)s has a process_exception that may respond for a view that raised, outside the guard of "
            "%(view)s%(others)s: a replay gets Django's own response, and what a view wrote before it raised "
            "an exception of the project's own is rolled back."
        ),
        (
            "Put its responses into a decorator below @idempotent(), or for REST framework into EXCEPTION_HANDLER: there "
            f"the guard sees them. If it never responds for these views, {_SILENCE}."
        ),
    ),
    "W071": (
        'IDEMPOTENCY["EXEMPT"] has %(entry)s, which matches no route of the URLconf.',
        'Type what python manage.py idempotency_routes shows, such as "%(close)s", or take the entry out.',
    ),
    "W074": (
        (
            "IdempotencyMiddleware does not guard django-ninja operations, whose authentication comes after it: "
            "%(count)s run unguarded, such as %(view)s."
        ),
        (
            "Put @idempotent() on each function that must not run twice, directly below the decorator that makes it "
            f"an operation, and @idempotency_exempt on the others; or {_SILENCE}."
        ),
    ),
    "E047": (
        '%(view)s is an async function, and no transaction can cover it: it cannot be "atomic".',
        'Type @idempotent_function(guarantee="lease", …).',
    ),
    "W064": (
        "%(count)s guarded functions are named %(name)s in the store: a call of one may return another's result.",
        (
            'Type a different key_prefix="…" for each. If they are variants of one function, such as an async one, '
            f"{_SILENCE}."
        ),
    ),
    "W066": (
        (
            "%(name)s is a method of the model %(model)s, keyed by all its arguments, but not by self: "
            "a call on one row may return the result of a call on another."
        ),
        'Pass what distinguishes the rows as an argument, such as the primary key, and type key="…" with its name.',
    ),
    # ---- Databases
    "W001": (
        (
            'The database "%(other)s" is not covered by "atomic", whose records are in "%(using)s": '
            "what a view writes there is not rolled back with it."
        ),
        (
            'If it is a replica, type DATABASES["%(other)s"]["TEST"] = {"MIRROR": "%(using)s"}. Where a view writes there, '
            f'type guarantee="lease" in its policy. Then {_SILENCE}.'
        ),
    ),
    "W002": (
        'DATABASE_ROUTERS keep the table of django_idempotency out of the database "%(using)s", where a store needs it.',
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
            "cannot bypass: while requests hold all of it, the leases of live owners expire, and their work runs again."
        ),
        (
            'Type "ENGINE": "django.db.backends.postgresql" and "OPTIONS": {"pool": True}, whose pool it bypasses; or give the '
            f"pool two connections more than a process has threads, and {_SILENCE}."
        ),
    ),
    "W065": (
        (
            'The outbox is in the database "%(using)s", whose isolation level is "%(level)s": a relay does not see what is '
            "committed while it scans, so messages with the same key may be sent out of order."
        ),
        'Take "isolation_level" out of DATABASES["%(using)s"]["OPTIONS"]: Django\'s own default is READ COMMITTED.',
    ),
    # ---- check --deploy
    "E050": (
        'The table "%(table)s" is missing in the database "%(using)s".',
        "Type python manage.py migrate django_idempotency --database=%(using)s",
    ),
    "E051": STORE_CHECKS["E051"],
    "E052": STORE_CHECKS["E052"],
    "E053": STORE_CHECKS["E053"],
    "W050": (
        'The database "%(using)s" is not responding, so its settings were not checked: %(error)s.',
        "Start it, then type python manage.py check --deploy again.",
    ),
    "W051": (
        (
            'PostgreSQL ("%(using)s") does not check whether a client is still there while a statement runs: '
            "the key of a dead worker stays locked until its statement ends."
        ),
        (
            'Add "-c client_connection_check_interval=1s" to DATABASES["%(using)s"]["OPTIONS"]["options"], '
            "or in SQL: ALTER ROLE %(user)s SET client_connection_check_interval = '1s'."
        ),
    ),
    "W052": (
        'PostgreSQL ("%(using)s") lets a transaction stay idle forever: a worker that hangs in its view holds its key.',
        (
            'Add "-c idle_in_transaction_session_timeout=60s" to DATABASES["%(using)s"]["OPTIONS"]["options"] '
            "(longer than your slowest call to a provider), "
            "or in SQL: ALTER ROLE %(user)s SET idle_in_transaction_session_timeout = '60s'."
        ),
    ),
    "W053": (
        (
            'PostgreSQL ("%(using)s") drops a silent client only after %(idle)s s: '
            "the key of a vanished host stays locked that long."
        ),
        (
            'Add "-c tcp_keepalives_idle=30 -c tcp_keepalives_interval=10 -c tcp_keepalives_count=3" to '
            'DATABASES["%(using)s"]["OPTIONS"]["options"], '
            "or in SQL, for each: ALTER ROLE %(user)s SET tcp_keepalives_idle = 30."
        ),
    ),
    "W054": (
        (
            'DATABASES["%(using)s"]["OPTIONS"] sets no limit for a silent PostgreSQL server: '
            "a worker waits for it until TCP gives up, which may take hours."
        ),
        (
            'Type DATABASES["%(using)s"]["OPTIONS"].update(keepalives_idle=30, keepalives_interval=10, '
            "keepalives_count=3, tcp_user_timeout=30_000)."
        ),
    ),
    "W078": (
        (
            'A process may open %(needed)s connections to DATABASES["%(using)s"] (%(pool)s, and two outside it: '
            'for the heartbeat, and for settles that are retried), but PostgreSQL grants "%(user)s" only %(limit)s.'
        ),
        (
            'Type DATABASES["%(using)s"]["OPTIONS"]["pool"] = {"min_size": 1, "max_size": %(fits)s} or less, since all your '
            "processes share that limit; or raise max_connections, or the limit in ALTER ROLE %(user)s CONNECTION LIMIT."
        ),
    ),
    "W055": (
        (
            '%(server)s ("%(using)s") lets a transaction stay idle for %(limit)s: '
            "a worker that hangs, or whose host vanished, holds its key that long."
        ),
        (
            'Type DATABASES["%(using)s"]["OPTIONS"]["init_command"] = "SET SESSION %(variable)s=60" '
            '(longer than your slowest call to a provider), and "CONN_HEALTH_CHECKS": True beside OPTIONS.'
        ),
    ),
    "W056": (
        (
            '%(server)s ("%(using)s") has innodb_rollback_on_timeout=ON: a lock timeout that a view catches rolls back '
            'half of its transaction, including the lock on its key, and "atomic" cannot detect it.'
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
        "Type IDEMPOTENCY_DISABLED=0, or take it out of the environment of every production service.",
    ),
    "W060": (
        'The store "%(alias)s" (%(backend)s) is not responding, so its server was not checked: %(error)s.',
        (
            "Start it, or allow this host and its credentials to read the server's settings; "
            "then type python manage.py check --deploy again."
        ),
    ),
    "W061": STORE_CHECKS["W061"],
    "W062": STORE_CHECKS["W062"],
    "W063": STORE_CHECKS["W063"],
}


def finding(code: str, **facts: Any) -> CheckMessage:
    """Build the check message of a code."""
    return message(CATALOGUE, code, **facts)
