"""A real Prometheus server, for the tests and pictures that need one."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from .services import program


@contextmanager
def scraping(targets: Mapping[str, str], folder: Path, *, every: str) -> Iterator[str]:
    """Run a Prometheus that scrapes these addresses at their paths. Yield its own address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    jobs = "".join(
        f"  - {{job_name: shop{number or ''}, metrics_path: {path}, static_configs: "
        f"[{{targets: ['{address}']}}]}}\n"
        for number, (address, path) in enumerate(targets.items())
    )
    (folder / "prometheus.yml").write_text(
        f"global: {{scrape_interval: {every}, scrape_timeout: {every}}}\nscrape_configs:\n{jobs}"
    )
    command = [program("prometheus") or "prometheus", f"--config.file={folder / 'prometheus.yml'}"]
    command += [f"--storage.tsdb.path={folder / 'tsdb'}", f"--web.listen-address=127.0.0.1:{port}"]
    with (folder / "prometheus.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()
