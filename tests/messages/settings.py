"""The testproject, with tasks that outlive their process, for workers.

TASKS_FOLDER says where the tasks are.
"""

from __future__ import annotations

import os

from testproject.settings import *  # noqa: F403

TASKS = {
    "default": {
        "BACKEND": "tests.messages.tasks.FolderBackend",
        "OPTIONS": {"folder": os.environ["TASKS_FOLDER"]},
    }
}
#: `lease` only: a death is noticed after 3 seconds, while duplicates wait up to WAIT, 5 seconds.
IDEMPOTENCY = {"LEASE": 3}
