"""django-ninja-extra, which must be installed: its controllers are made by its injector."""

from __future__ import annotations

from testproject.settings import *  # noqa: F403 - these settings, but for a few
from testproject.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "ninja_extra"]
ROOT_URLCONF = "tests.proofs.neighbours.ninja_extra.cases"
