"""Programs of Debian's unstable suite: MySQL, and newer versions of what is here.

They are in a folder below .cache that is the root of their own file system. It takes a minute and
some hundred megabytes to make, needs root, and changes nothing of the machine. It is kept as it is;
remove the folder for newer versions.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from . import obtaining
from .obtaining import CACHE, Unavailable, call

HOME = CACHE / "unstable"
SUITE = "sid"
#: Shows the folder /proc and /dev while a command runs there: they are mounted for its process.
_ENTER = 'mount -t proc proc "$0/proc" && mount --bind /dev "$0/dev" && exec chroot "$0" "$@"'


def unstable(*packages: str) -> Path:
    """Return the folder, with these packages installed. Raises `Unavailable`."""
    if os.geteuid() != 0:
        raise Unavailable("only root can enter a folder with Debian's unstable packages.")
    made = HOME / "complete"
    if not made.exists():
        shutil.rmtree(HOME, ignore_errors=True)
        _make()
        made.touch()
    missing = [name for name in packages if not (HOME / f"var/lib/dpkg/info/{name}.list").exists()]
    if missing:
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        get = ("apt-get", "-qq", "-o", "Acquire::Check-Valid-Until=false")
        call(inside(*get, "update"), quiet)
        call(inside(*get, "install", "--yes", "--no-install-recommends", *missing), quiet)
    return HOME


def inside(*command: str) -> list[str]:
    """Return the command that runs another in the folder."""
    return ["unshare", "--mount", "sh", "-c", _ENTER, str(HOME), *command]


def _make() -> None:
    obtaining.debian("debootstrap", "debootstrap")
    HOME.mkdir(parents=True)
    # The packages of that suite merge /usr themselves.
    basic = ["--variant=minbase", "--no-merged-usr", "--include=ca-certificates"]
    call(["debootstrap", *basic, SUITE, str(HOME), _mirror()])
    shutil.copy("/etc/resolv.conf", HOME / "etc")
    certificates = Path("/etc/ssl/certs/ca-certificates.crt")
    if certificates.exists():  # a proxy's, too
        shutil.copy(certificates, HOME / "etc/ssl/certs")
    settings = _said_by(["apt-config", "dump"])
    kept = [line for line in settings if line.startswith(("Acquire::http", "Acquire::Check-"))]
    (HOME / "etc/apt/apt.conf.d/machine").write_text("\n".join(kept), encoding="utf-8")


def _mirror() -> str:
    """Return the address from which apt gets Debian's packages here."""
    listing = ["apt-get", "indextargets", "--format", "$(ORIGIN) $(CODENAME) $(REPO_URI)"]
    for line in _said_by([*listing, "Created-By: Packages"]):
        origin, codename, address = line.split()
        if origin == "Debian" and "-" not in codename:  # neither updates nor security
            return address
    raise Unavailable("apt has no address of Debian's packages.")


def _said_by(command: list[str]) -> list[str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"{command[0]}: {error}") from None
    return done.stdout.splitlines()
