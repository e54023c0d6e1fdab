"""Let official clients of APIs talk to guarded views in those APIs' dialects, over real HTTP.

    python -m tests.proofs.clients [pytest arguments]

They are installed into .venv-clients and .cache/clients, from PyPI and npm. Nothing is sent
anywhere else than to a server on this machine.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence

from ..environments import ROOT, Unavailable, of_project
from . import environment
from .clients import HERE


def main(arguments: Sequence[str]) -> int:
    try:
        environment.build()
    except Unavailable as error:
        print(error, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        variables = of_project("tests.proofs.clients.api.settings", folder)
        ini = HERE / "pytest.ini"
        command = [
            str(environment.PYTHON),
            "-m",
            "pytest",
            "-q",
            "-c",
            str(ini),
            str(HERE / "cases"),
        ]
        return subprocess.run(
            [*command, *arguments], cwd=ROOT, env=variables, check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
