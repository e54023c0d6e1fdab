"""A worker that dies after the view's write: `python -m tests.proofs.peers.shop.dying SITE KEY`."""

from __future__ import annotations

import os
import sys

#: The exit code of a worker that has died where it should.
DEAD = 77


def main(name: str, key: str) -> None:
    import django

    django.setup()
    from .sites import opened
    from .views import stage

    with opened(name) as shop:
        stage.ends = lambda _: os._exit(DEAD)
        shop.send(key=key)


if __name__ == "__main__":
    main(*sys.argv[1:])
