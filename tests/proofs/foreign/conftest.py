"""Nothing here is collected by the package's own run: these are other projects' settings and
fixtures.
"""

from __future__ import annotations

collect_ignore = ["guard", "oauth_toolkit", "shop"]
