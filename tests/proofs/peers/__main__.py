"""Send the same requests to a view under another package and under ours, and compare what they do.

    python -m tests.proofs.peers [pytest arguments]

The packages are installed into .venv-peers. It needs PostgreSQL and Redis.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ..environments import ROOT, Unavailable, inherited, install, python_of

HERE = Path(__file__).parent
VENV = ROOT / ".venv-peers"
#: What they and we need has one list, which the bench uses, too.
PACKAGES = ROOT / "benchmarks" / "requirements" / "peers.txt"
#: Seconds for the installation.
LIMIT = 600


def build() -> None:
    """Install the pinned packages, unless they are there. Raises `Unavailable`."""
    pins = ROOT / ".cache" / "peers.txt"
    pins.parent.mkdir(exist_ok=True)
    pins.write_text(
        PACKAGES.read_text(encoding="utf-8")
        + (HERE / "requirements.txt").read_text(encoding="utf-8"),
        encoding="utf-8",
    )
    install(VENV, pins, time.monotonic() + LIMIT)


def main(arguments: Sequence[str]) -> int:
    try:
        build()
    except Unavailable as error:
        print(error, file=sys.stderr)
        return 1
    variables = {
        **inherited(),
        "DJANGO_SETTINGS_MODULE": "tests.proofs.peers.shop.settings",
        "PYTHONPATH": str(ROOT),
    }
    command = [str(python_of(VENV)), "-m", "pytest", "-q", "-c", str(HERE / "pytest.ini")]
    return subprocess.run(
        [*command, str(HERE / "cases"), *arguments], cwd=ROOT, env=variables, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
