"""Pythons that the machine does not have: the core's tests on each, and on some of them the optional
apps' beside.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from ... import matrix
from .obtaining import CACHE, ROOT, Unavailable, call
from .running import Result, run
from .unstable import unstable

#: What one environment installs: the extras and the dependency group of the core's tests, or of all.
CORE = (".[redis,rest]", "--group", "test-core")
ALL = (".[all]", "--group", "test")
#: Of all tests, those that need neither a server nor processes: one case of each.
QUICK = "(unit or any_database) and not (faults or needs or slow)"
#: Pythons for which all packages of the tests have wheels, or are built without a compiler.
COMPLETE = ("3.14",)

Enter = Callable[..., list[str]]
#: Shows a folder with packages of another Debian this checkout, at its own path, and runs a command
#: there: $0 is the folder, $1 the checkout.
_ENTER = (
    'mkdir -p "$0$1" && mount --bind "$1" "$0$1" && mount -t proc proc "$0/proc" '
    '&& mount --bind /dev "$0/dev" && exec chroot "$0" sh -c \'cd "$0" && exec "$@"\' "$@"'
)


def here(*command: str) -> list[str]:
    return [*command]


def in_folder(home: Path) -> Enter:
    """Return what makes a command one that runs in the folder, in this checkout."""

    def enter(*command: str) -> list[str]:
        return ["unshare", "--mount", "sh", "-c", _ENTER, str(home), str(ROOT), *command]

    return enter


def of_unstable(version: str) -> Result:
    """Run on a Python of Debian's unstable suite. Raises `Unavailable`."""
    home = unstable(f"python{version}", f"python{version}-venv")
    settings = Path("~/.config/pip/pip.conf").expanduser()
    if settings.exists():  # where this machine's pip finds packages
        shutil.copy(settings, home / "etc" / "pip.conf")
    enter = in_folder(home)
    return _on(f"python{version}", version, enter, complete=version in COMPLETE)


def of_machine(version: str, django: str) -> Result:
    """Run on another Python of this machine, with another Django. Raises `Unavailable`."""
    found = subprocess.run(
        ["bash", ".ci/interpreter", version],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout.strip()
    if not found:
        raise Unavailable(f"there is no Python {version} here.")
    return _on(found, version, here, django)


def _on(
    interpreter: str, version: str, enter: Enter, *django: str, complete: bool = False
) -> Result:
    venv = CACHE / f"python-{version}"
    python = str(venv / "bin" / "python")
    _install(interpreter, venv, enter, (*CORE, *django))
    # pytest compiles nothing and keeps no cache: the folder is that of the checkout.
    options = ("-p", "no:cacheprovider")
    place = {"DATABASE": "sqlite", "TEST_DATABASE_SUFFIX": f"_python_{version.replace('.', '_')}"}
    counts = run([], place, *options, command=enter(python, "-m", "tests.core_alone"))
    if complete and not counts.failed:
        _install(interpreter, venv, enter, (*ALL, *django))
        quick = ("-n", "2", "--assert=plain", "--one-case", "-m", QUICK)
        counts += run([], place, *options, *quick, command=enter(python, "-m", "pytest"))
    on = matrix.versions("database", command=enter(python), environment={**os.environ, **place})
    return Result(version=f"Python {on.python}, Django {on.django}", counts=counts, on=on)


def _install(interpreter: str, venv: Path, enter: Enter, wanted: Sequence[str]) -> None:
    """Make an environment, and install what is wanted into it. Raises `Unavailable`."""
    python = str(venv / "bin" / "python")
    if not (venv / "bin" / "pip").exists():
        call(enter(interpreter, "-m", "venv", "--upgrade-deps", str(venv)))
    quiet = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--prefer-binary")
    call(enter(python, *quiet, "--editable", *wanted))


INTERPRETERS: dict[str, Callable[[], Result]] = {
    "python-3.10": lambda: of_machine("3.10", "django~=5.2.0"),
    "python-3.12": lambda: of_machine("3.12", "django~=6.0.0"),
    "python-3.13": lambda: of_machine("3.13", "django~=6.1.0"),
    "python-3.14": lambda: of_unstable("3.14"),
    "python-3.15": lambda: of_unstable("3.15"),
}
