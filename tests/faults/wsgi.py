"""The testproject's application; each worker that has loaded it reports that."""

import os
from pathlib import Path

from testproject.wsgi import application

__all__ = ["application"]

(Path(os.environ["WORKERS_FOLDER"]) / f"{os.getpid()}.worker").touch()
