"""Obtain the suite, open the shop, run both.

    python -m tests.proofs.commerce ucp [--source=repository] [pytest arguments]

The suite is fetched by git at a pinned commit, from its home or from a copy of it that --source
names.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from ...environments import ROOT, Unavailable, call, install, of_project, python_of

HERE = Path(__file__).resolve().parent
VENV = ROOT / ".venv-commerce"
HOME = "https://github.com/Universal-Commerce-Protocol/conformance"
#: Its name is a hash of all that it contains, which git compares.
COMMIT = "fdced3ad4d92637a55de8f4b71a6dead5a2621c0"
SUITE = ROOT / ".cache" / "commerce" / f"ucp-{COMMIT}"
#: Seconds to obtain all of it.
LIMIT = 480


def main(arguments: Sequence[str]) -> int:
    sources = [each.partition("=")[2] for each in arguments if each.startswith("--source=")]
    try:
        build(*sources)
    except Unavailable as error:
        print(error, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        variables = {
            **of_project("tests.proofs.commerce.ucp.shop.settings", folder),
            "COMMERCE_DATA": str(SUITE / "test_data" / "flower_shop"),
            "COMMERCE_SECRET": "on its way",
        }
        pytest = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-c",
            str(HERE.parent / "pytest.ini"),
            str(HERE / "cases"),
        ]
        others = [each for each in arguments if not each.startswith("--source=")]
        return subprocess.run([*pytest, *others], cwd=ROOT, env=variables, check=False).returncode


def build(source: str = HOME) -> None:
    """Install what the suite needs, and unpack it. Raises `Unavailable`."""
    deadline = time.monotonic() + LIMIT
    install(VENV, HERE / "requirements.txt", deadline)
    if SUITE.exists():
        return
    SUITE.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=SUITE.parent) as folder:
        git = ["git", f"--git-dir={folder}/git"]
        trouble = f"The suite cannot be had from {source}"
        call([*git, "init", "--quiet", "--bare"], deadline, trouble)
        call([*git, "fetch", "--quiet", "--depth=1", source, COMMIT], deadline, trouble)
        call([*git, "archive", f"--output={folder}/suite.tar", COMMIT], deadline, trouble)
        # Unpacked beside its place and then moved: half a folder is never mistaken for a whole one.
        with tarfile.open(f"{folder}/suite.tar") as tar:
            tar.extractall(f"{folder}/suite", filter="data")
        Path(folder, "suite").rename(SUITE)


def python() -> Path:
    """Return the interpreter that the suite runs on."""
    return python_of(VENV)
