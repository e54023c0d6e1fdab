"""What the site takes from the package's metadata: its addresses, which pyproject.toml says once, and its version."""

from __future__ import annotations

import os
from importlib.metadata import metadata

from mkdocs.config.defaults import MkDocsConfig


def on_config(config: MkDocsConfig) -> None:
    package = metadata("django-idempotency")
    urls = dict(line.split(", ", 1) for line in package.get_all("Project-URL") or [])
    config.copyright = f"Version {package['Version']}. {config.copyright}"
    # Read the Docs says where this build will be; `mkdocs serve` has said it before.
    config.site_url = config.site_url or os.environ.get("READTHEDOCS_CANONICAL_URL") or urls.get("Documentation")
    if source := urls.get("Source"):
        config.repo_url, config.repo_name = source, source.rstrip("/").rpartition("/")[2]
        config.edit_uri = "edit/main/docs/"


def on_post_template(output: str, *, template_name: str, config: MkDocsConfig, **_: object) -> str:
    """Leave the sitemap out while the site has no address: it would name no page."""
    return "" if template_name == "sitemap.xml" and not config.site_url else output
