"""Write the function that the page on how it works walks through: `python -m tests.docs.walk`."""

from __future__ import annotations

import re

from .pages import DOCS, ROOT

PAGE = DOCS / "explanation/how-it-works.md"
SOURCE = ROOT / "django_idempotency/http/run.py"
_QUOTE = re.compile(
    r"(<!-- from: django_idempotency/http/run\.py -->\n\n```python\n).*?(^```$)",
    re.DOTALL | re.MULTILINE,
)


def walked() -> str:
    """Return `run()` and its second half, as they are."""
    source = SOURCE.read_text(encoding="utf-8")
    return (
        source[source.index("\ndef run(") + 1 : source.index("\nasync def arun(")].rstrip() + "\n"
    )


def written(page: str) -> str:
    """Return the page with the function as it is."""
    return _QUOTE.sub(lambda found: f"{found[1]}{walked()}{found[2]}", page)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
