"""The first tutorial is carried out: its files, its commands, its servers and its `kill -9`."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from .pages import blocks, text
from .shop import FIRST, Command, Shop, commands, listening

#: What differs from one run to the next: tokens, references, seconds, and how many of twenty found
#: what.
_VARIES = re.compile(r"[0-9a-f]{40}|op_[a-z2-7]+|\d+\.\d+s|^ +\d+ \d{3} [\w-]+$", re.MULTILINE)
#: The last file that is written before the first command.
_LAST = "shop/urls.py"
_SLEEP = re.compile(r"    def perform_create\(self, serializer\):\n.*?\n(?=\n|\Z)", re.DOTALL)


class Reader:
    """Somebody who follows the page."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        #: `payments/views.py` without the pause.
        self.quick = ""

    def begin(self) -> None:
        """Write the files that the page gives before its first command."""
        self.shop._run("django-admin startproject shop . && python manage.py startapp payments")
        for name, code in re.findall(
            r"`(\w+/\w+\.py)`:\n\n```python\n(.*?)^```$", text(FIRST), re.DOTALL | re.MULTILINE
        ):
            self.shop._write(name, code, adds=name == "shop/settings.py")
            if name == _LAST:
                return

    def follow(self) -> None:
        """Do what the rest of the page says. Raises `AssertionError` where it differs."""
        after = text(FIRST)[: text(FIRST).index("Create the tables")].count("\n")
        for block in blocks(FIRST):
            if block.line < after:
                continue
            if block.language == "python":
                self.edit(block.code)
            elif block.language == "shell":
                self.type_lines(block.code)
            elif block.language == "console":
                for command in commands(block):
                    self.type(command)

    def edit(self, code: str) -> None:
        shop = self.shop
        if code.startswith("INSTALLED_APPS"):
            self.replace("shop/settings.py", r"^INSTALLED_APPS \+=.*\n", code)
        elif code.startswith("from django_idempotency import Policy"):
            imports, _, rest = code.partition("\n# ...\n")
            head = rest.partition("    # ... the rest stays")[0].strip("\n")
            self.replace("payments/views.py", r"^from rest_framework import.*\n", imports)
            self.replace("payments/views.py", r"^class ChargeViewSet.*\n", f"{head}\n")
        elif "time.sleep" in code:
            views = shop.folder / "payments" / "views.py"
            self.quick = views.read_text(encoding="utf-8")
            views.write_text(
                "import time\n" + _SLEEP.sub(lambda _: code, self.quick), encoding="utf-8"
            )
        else:
            shop._write("payments/tests.py", code)

    def replace(self, name: str, pattern: str, code: str) -> None:
        file = self.shop.folder / name
        old = file.read_text(encoding="utf-8")
        new = re.sub(pattern, lambda _: code, old, count=1, flags=re.MULTILINE)
        assert new != old, f"{name} has nothing like {pattern}"
        file.write_text(new, encoding="utf-8")

    def type_lines(self, code: str) -> None:
        if "runserver" in code:
            self.serve()
        elif code.startswith("kill"):
            self.kill()
            (self.shop.folder / "payments" / "views.py").write_text(self.quick, encoding="utf-8")
            self.serve()
        else:
            self.shop._define(
                code.replace(
                    "TOKEN=", "TOKEN=$(python manage.py drf_create_token asha | cut -d ' ' -f 3) #"
                )
            )

    def serve(self) -> None:
        self.kill()
        self.shop._run(
            "python manage.py runserver --noreload > server.log 2>&1 & echo $! > server.pid"
        )
        listening(self.shop.port)

    def kill(self) -> None:
        if (self.shop.folder / "server.pid").exists():
            self.shop._run("kill -9 $(cat server.pid)")
            listening(self.shop.port, still=False)

    def type(self, command: Command) -> None:
        if "runserver" in command.typed:
            self.serve()
        elif command.typed.endswith("&"):
            self.shop._start(command.typed)
            self.shop._run("sleep 1")
        elif command.typed.startswith("KEY="):
            self.shop._defined += command.typed + "\n"
        else:
            done = self.shop._run(f"{{ {command.typed}\n}} 2>&1")
            assert shape(command.shown) in shape(done) or shape(done) == shape(command.shown), (
                f"first-charge.md:{command.line}: {command.typed}\n\n{done}\n\nand "
                f"not\n\n{command.shown}"
            )


def shape(output: str) -> str:
    """Return an output without what differs from run to run.

    A migration of Django's may be one more.
    """
    kept = [
        line for line in output.splitlines() if "Applying " not in line and line.strip() != "..."
    ]
    said = _VARIES.sub("…", "\n".join(kept))
    return (
        re.sub(r"(…\n?)+", "…\n", said)
        .replace("Unprocessable Content", "Unprocessable Entity")
        .strip()
    )


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="The page types curl.")
def test_the_page(tmp_path: Path) -> None:
    """Every command prints what the page shows."""
    shop = Shop(tmp_path)
    reader = Reader(shop)
    try:
        reader.begin()
        reader.follow()
        assert "Taken over: an earlier owner did not finish." in (
            tmp_path / "server.log"
        ).read_text(encoding="utf-8")
    finally:
        shop.stop()
