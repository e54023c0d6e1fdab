"""Let official clients of APIs talk to guarded views in those APIs' profiles, over real HTTP.

    python -m tests.proofs.clients [pytest arguments]

They are installed into .venv-clients and .cache/clients, from PyPI and npm. Nothing is sent anywhere else than to a
server on this machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from ..environments import ROOT, Unavailable
from . import environment
from .clients import HERE


def main(arguments: Sequence[str]) -> int:
    try:
        environment.build()
    except Unavailable as error:
        print(error, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        variables = {
            **{name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")},
            "CLIENTS_DATABASE": f"{folder}/db.sqlite3",
            "DJANGO_SETTINGS_MODULE": "tests.proofs.clients.api.settings",
            "PYTHONPATH": str(ROOT),
        }
        ini = HERE / "pytest.ini"
        command = [str(environment.PYTHON), "-m", "pytest", "-q", "-c", str(ini), str(HERE / "cases")]
        return subprocess.run([*command, *arguments], cwd=ROOT, env=variables, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
