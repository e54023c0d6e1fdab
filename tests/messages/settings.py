"""The testproject, with tasks that outlive their process. For workers; TASKS_FOLDER says where they get them."""

from __future__ import annotations

import os

from testproject.settings import *  # noqa: F403

TASKS = {
    "default": {
        "BACKEND": "tests.messages.tasks.FolderBackend",
        "OPTIONS": {"folder": os.environ["TASKS_FOLDER"]},
    }
}
#: `lease` only: who died is found out after 3 seconds, while WAIT, 5 of them, lets others wait.
IDEMPOTENCY = {"LEASE": 3}
