"""What checks say about the settings."""

from __future__ import annotations

from ...stores.check_messages import SILENCE

SETTINGS: dict[str, tuple[str, str]] = {
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
    "E090": (
        'IDEMPOTENCY["METRICS"] = %(value)s measures nothing: %(problem)s.',
        (
            'Type "METRICS": "prometheus" or "opentelemetry", the dotted path of a subclass of Meter, or a list of these; '
            "or leave it out."
        ),
    ),
    "E087": (
        'IDEMPOTENCY["PROFILE"] and the other settings contradict each other: %(problem)s.',
        'Type "PROFILE": "default", or change the setting that is named.',
    ),
    "W087": (
        'IDEMPOTENCY["HEADER"] = %(value)s counts for the profile "default" only: "%(name)s" has its key in the %(carrier)s %(field)s.',
        (
            'Take "HEADER" out. To change the name, type "PROFILE": '
            'dataclasses.replace(django_idempotency.core.profiles.PROFILES["%(name)s"], field=…).'
        ),
    ),
    "E092": (
        'IDEMPOTENCY["ON_TAKEOVER"] is never asked: with the guarantee "atomic" nothing of a crashed owner is left.',
        'Type "GUARANTEE": "lease", or leave "ON_TAKEOVER" out and type on_takeover=… in the policies with guarantee="lease".',
    ),
    "E131": (
        'IDEMPOTENCY["UNDO_ON"] undoes nothing: with the guarantee "atomic" no step can have an undo.',
        'Type "GUARANTEE": "lease", or leave "UNDO_ON" out and type undo_on=… in the policies with guarantee="lease".',
    ),
    "E093": (
        'IDEMPOTENCY["FRESH_KEYS_BY"] counts nothing, since "FRESH_KEYS" sets no limit.',
        'Type "FRESH_KEYS": "60/m", or leave "FRESH_KEYS_BY" out.',
    ),
    "E104": (
        (
            'IDEMPOTENCY["SUSPECT_ACTION"] is "refuse" and "ANONYMOUS" is "shared", so clients without a login would learn of '
            "each other's requests."
        ),
        (
            'Type "SUSPECT_ACTION": "report"; or "ANONYMOUS": "refuse", and "SCOPE": the dotted path of a function that '
            "identifies the client."
        ),
    ),
    "E094": (
        'IDEMPOTENCY["CACHE"] = %(value)s, and CACHES has no such alias.',
        'Type "CACHE": "%(close)s", or add the alias to CACHES.',
    ),
    "E007": (
        'IDEMPOTENCY["%(name)s"] holds %(found)s.',
        (
            'Type non-empty text or bytes: "DERIVE_SECRET": os.environ["DERIVE_SECRET"], '
            '"DERIVE_SECRET_FALLBACKS": [the earlier ones]; or leave both out to use SECRET_KEY.'
        ),
    ),
    "E110": (
        'IDEMPOTENCY["%(name)s"] is for the app "%(app)s", which INSTALLED_APPS does not have: nothing is done.',
        'Add "%(app)s" to INSTALLED_APPS, and type python manage.py migrate; or leave "%(name)s" out.',
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
            f"type {SILENCE}."
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
}
