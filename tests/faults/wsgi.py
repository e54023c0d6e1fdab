"""The testproject's application; each worker that has loaded it says so."""

import os
from pathlib import Path

from testproject.wsgi import application

__all__ = ["application"]

(Path(os.environ["WORKERS_FOLDER"]) / f"{os.getpid()}.worker").touch()
