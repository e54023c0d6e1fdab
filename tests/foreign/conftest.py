"""Nothing here is collected by the package's own run: these are other people's settings and fixtures."""

from __future__ import annotations

collect_ignore = ["guard", "oauth_toolkit", "shop"]
