"""What checks say about the middleware and the routes."""

from __future__ import annotations

from ...core.policy import async_contradiction
from ...stores.check_messages import SILENCE

_OURS = '"django_idempotency.middleware.IdempotencyMiddleware"'

MIDDLEWARE: dict[str, tuple[str, str]] = {
    "W072": (
        (
            "IdempotencyMiddleware comes before %(other)s, whose process_view may refuse a request: "
            "it is not asked about those that are guarded."
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
}

ROUTES: dict[str, tuple[str, str]] = {
    "E030": (
        async_contradiction("%(view)s"),
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
        "Put IdempotentViewMixin first in the bases of %(name)s, or @idempotency_exempt on it; or name it in EXEMPT, if it is not yours.",
    ),
    "E034": (
        "%(view)s has @idempotent() below @api_view, inside the transaction of ATOMIC_REQUESTS.",
        "Swap the two lines: @idempotent() above @api_view.",
    ),
    "W140": (
        (
            "%(view)s is open to clients without a user (AllowAny), and its policy refuses their keys: each request "
            "that has one gets 400 scope-required."
        ),
        (
            'Type permission_classes = [IsAuthenticated]; or Policy(scope="…", …), which names the owner of a key, or '
            'Policy(anonymous="shared", …).'
        ),
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
            f"the decorator if it does not check access; or {SILENCE}."
        ),
    ),
    "W135": (
        (
            "%(layer)s, a decorator above the @idempotent() of %(view)s%(others)s, runs outside the transaction of ATOMIC_REQUESTS, "
            "with a key and without."
        ),
        (
            "If it writes or locks rows, type with transaction.atomic(): in it; or, if it does not check access, put @idempotent() "
            f"above it. Otherwise {SILENCE}."
        ),
    ),
    "E035": (
        "The policy of %(view)s and IDEMPOTENCY contradict each other: %(error)s",
        "Type both fields in the policy of %(view)s, or change the setting.",
    ),
    "E091": (
        'The on_takeover of %(view)s is never asked: with guarantee="atomic" nothing of a crashed owner is left.',
        'Type guarantee="lease" in the policy of %(view)s, or leave on_takeover out.',
    ),
    "E130": (
        (
            'The undo_on of %(view)s undoes nothing: with guarantee="atomic" no step can have an undo, and what the view writes '
            "is rolled back as a whole."
        ),
        'Type guarantee="lease" in the policy of %(view)s, or leave undo_on out.',
    ),
    "E133": (
        "%(view)s has steps (undo_on) and store_body=False, and a step's result is stored until the operation has ended.",
        'Type "ENCRYPTION_KEYS", so that it is stored sealed; or leave undo_on or store_body out of the policy of %(view)s.',
    ),
    "W104": (
        (
            'The fresh_keys of %(view)s count all clients without a login as one, since they share a scope (anonymous="shared"): '
            "one of them can use up the limit of all."
        ),
        (
            "Type fresh_keys_by= a function that returns what tells them apart, such as the address that your proxy has "
            f"verified. If one limit for all of them is meant, {SILENCE}."
        ),
    ),
    "E095": (
        "The fresh_keys of %(view)s cannot be counted: django-ratelimit is not installed, and a request with a key raises.",
        'Type python -m pip install "django-idempotency[throttle]", or leave fresh_keys out.',
    ),
    "E096": (
        "The fresh_keys of %(view)s cannot be counted: RATELIMIT_USE_CACHE is %(alias)s, which CACHES does not have.",
        'Type RATELIMIT_USE_CACHE = "%(close)s", or add the alias to CACHES.',
    ),
    "W096": (
        "%(view)s looks as if its responses contain secrets, and they are stored for a replay.",
        (
            "Type store_body=False in its policy, store_body=True if it returns none, or put @idempotency_exempt on it if a second "
            'secret is better than none. If you cannot edit the view, name it in "EXEMPT".'
        ),
    ),
    "W093": (
        (
            'The policy of %(view)s has %(field)s, which needs a cache that all processes share and that counts in one step, and CACHES["%(alias)s"] is a %(backend)s: '
            "%(effect)s."
        ),
        (
            'Type CACHES["%(alias)s"] = {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": '
            f'"redis://127.0.0.1:6379/1"}}. If there is only one process, {SILENCE}.'
        ),
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
    "W088": (
        "%(asking)s takes keys that the server issues, and no route issues any: each request with a key is refused.",
        (
            'Add path("", include("django_idempotency.contrib.issued_keys.urls")) to urlpatterns, or a route to the IdempotencyTokenView of '
            f"django_idempotency.contrib.issued_keys.rest; or {SILENCE}."
        ),
    ),
    "W077": (
        (
            "IdempotencyMiddleware refuses to replay %(view)s%(others)s: %(layer)s comes before the view, and cannot be "
            "asked again."
        ),
        (
            "Put @idempotent() below it, directly on the view or on the class (if it is the view, on that), so that it is asked each "
            "time; python manage.py idempotency_routes names all such views. Where you cannot edit them, type "
            '"REPLAY_THROUGH": ["dotted.path.of.the.decorator"] in IDEMPOTENCY, if that may be run again before a replay; or '
            f'"AUTHORIZE_REPLAY": "dotted.path", and ask there; or name the view in "EXEMPT"; or {SILENCE}.'
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
    "W085": (
        (
            "%(other)s has a process_exception that may respond for a view that raised, outside the guard of "
            "%(view)s%(others)s: a replay gets Django's own response, and what a view wrote before it raised "
            "an exception of the project's own is rolled back."
        ),
        (
            "Put its responses into a decorator of the view's, below @idempotent(), or for REST framework into "
            f"EXCEPTION_HANDLER: there the guard sees them. If it never responds for these views, {SILENCE}."
        ),
    ),
    "W071": (
        'IDEMPOTENCY["EXEMPT"] has %(entry)s, which matches no route of the URLconf.',
        'Type what python manage.py idempotency_routes shows, such as "%(close)s", or take the entry out.',
    ),
    "E047": (
        async_contradiction("%(view)s"),
        'Type @idempotent_function(guarantee="lease", …).',
    ),
    "W064": (
        "%(count)s guarded functions are named %(name)s in the store: a call of one may return another's result.",
        (
            'Type a different key_prefix="…" for each. If they are variants of one function, such as an async one, '
            f"{SILENCE}."
        ),
    ),
    "W066": (
        (
            "%(name)s is a method of the model %(model)s, keyed by all its arguments, but not by self: "
            "a call on one row may return the result of a call on another."
        ),
        'Pass what distinguishes the rows as an argument, such as the primary key, and type key="…" with its name.',
    ),
}
