"""The project over real HTTP, behind a proxy that can lose an answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from django.core.wsgi import get_wsgi_application

from ....faults.proxy import Proxy


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Silent(WSGIRequestHandler):
    def log_message(self, *_: object) -> None: ...


@contextmanager
def serving() -> Iterator[Proxy]:
    """Serve until the end. Clients connect to the proxy's port."""
    server = make_server("127.0.0.1", 0, get_wsgi_application(), _Server, _Silent)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    proxy = Proxy("127.0.0.1", server.server_port)
    try:
        yield proxy
    finally:
        proxy.close()
        server.shutdown()
        thread.join()
        server.server_close()
