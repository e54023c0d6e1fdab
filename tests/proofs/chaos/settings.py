"""The testproject with the views of the workloads.

For the server and for the commands at the end of a run.
"""

from __future__ import annotations

from testproject.settings import *  # noqa: F403

ROOT_URLCONF = "tests.proofs.chaos.urls"
