"""For the setting `REALM` and `Policy(realm=…)`: the tenant that qualifies scopes, so that keys of two never meet."""

from .current import SAID, realm, realm_of
from .functions import host, schema, tenants_alias

__all__ = ["SAID", "host", "realm", "realm_of", "schema", "tenants_alias"]
