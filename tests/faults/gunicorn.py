"""gunicorn's configuration: each worker that can serve reports that."""

import os
from pathlib import Path


def post_worker_init(worker: object) -> None:
    (Path(os.environ["WORKERS_FOLDER"]) / f"{os.getpid()}.worker").touch()
