"""What the site takes from elsewhere.

The package's metadata has its addresses, which pyproject.toml says once, and its version. The code
has its checks and commands. The pictures go into the pages, so that they take the colours of the
page, light or dark.
"""

from __future__ import annotations

import os
import re
from html import escape, unescape
from importlib.metadata import metadata
from pathlib import Path

from generated import filled
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page


def on_config(config: MkDocsConfig) -> None:
    package = metadata("django-idempotency")
    urls = dict(line.split(", ", 1) for line in package.get_all("Project-URL") or [])
    config.copyright = f"Version {package['Version']}. {config.copyright}"
    # Read the Docs says where this build will be; `mkdocs serve` has said it before.
    config.site_url = (
        config.site_url or os.environ.get("READTHEDOCS_CANONICAL_URL") or urls.get("Documentation")
    )
    if source := urls.get("Source"):
        config.repo_url, config.repo_name = source, source.rstrip("/").rpartition("/")[2]
        config.edit_uri = "edit/main/docs/"


def on_page_markdown(markdown: str, **_: object) -> str:
    """Make the tables of checks and commands from the code."""
    return filled(markdown)


def on_page_content(html: str, **_: object) -> str:
    """Put each picture itself in place of the link to it, with its text for those who cannot see
    it.
    """
    return re.sub(r'<p><img alt="([^"]*)" src="[./]*pictures/(\w+)\.svg" ?/?></p>', _picture, html)


def _picture(found: re.Match[str]) -> str:
    svg = (Path(__file__).parent / "pictures" / f"{found[2]}.svg").read_text(encoding="utf-8")
    return f'<div class="pictured" role="img" aria-label="{escape(unescape(found[1]))}">{svg}</div>'


def on_post_template(output: str, *, template_name: str, config: MkDocsConfig, **_: object) -> str:
    """Leave the sitemap out while the site has no address: it would name no page."""
    return "" if template_name == "sitemap.xml" and not config.site_url else output


def on_env(_env: object, *, config: MkDocsConfig, files: Files, **_: object) -> None:
    """Make llms.txt (llmstxt.org): every page with its first sentence, for programs that read for
    people.
    """
    pages = [page for file in files.documentation_pages() if (page := file.page) is not None]
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    lines += [
        f"- [{page.title}]({page.canonical_url or page.url or '.'}): {_first_sentence(page)}"
        for page in pages
    ]
    files.append(File.generated(config, "llms.txt", content="\n".join(lines) + "\n"))


def _first_sentence(page: Page) -> str:
    paragraphs = re.split(r"\n{2,}", page.markdown or "")
    text = next((each for each in paragraphs if re.match(r"[\w*\[]|`(?!`)", each)), "")
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)|[*`]", r"\1", " ".join(text.split()))
    return re.split(r"(?<=[.?]) ", words, maxsplit=1)[0]
