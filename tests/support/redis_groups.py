"""Several Redis servers that stand in for each other: a cluster with replicas, and a primary
watched by Sentinels.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from .store_servers import RedisNode, RedisServer, running

#: The name that the Sentinels know the primary by.
NAME = "records"


@dataclass(frozen=True)
class Group:
    """A primary that can be killed, its replicas, and those that decide which replica follows
    it.
    """

    primary: RedisServer
    replicas: list[RedisServer]
    #: For a cluster, all its masters; for Sentinel, the Sentinels.
    others: list[RedisServer]
    clustered: bool

    def kill_primary(self, *, unreplicated: float = 0) -> None:
        """Kill it.

        `unreplicated`: for so many seconds before, it has no replica, as when the network between
        is slow.
        """
        if unreplicated:
            self.replicas[0].freeze()
            with Redis(port=self.primary.port) as client:
                client.execute_command("CLIENT KILL TYPE replica")
            time.sleep(unreplicated)
        self.primary.kill()
        self.replicas[0].thaw()

    def promoted(self) -> bool:
        """Is the first replica a primary now, known as such to the others?"""
        new = self.replicas[0]
        if self.clustered:
            with Redis(port=self.others[-1].port, decode_responses=True) as client:
                nodes = client.execute_command("CLUSTER NODES")
            return "master" in nodes[f"127.0.0.1:{new.port}"]["flags"]
        with suppress(RedisError), Redis(port=self.others[0].port, decode_responses=True) as client:
            return int(client.sentinel_master(NAME)["port"]) == new.port
        return False


class Sentinel(RedisServer):
    """A process that watches a primary. Its file is rewritten by itself."""

    def __init__(self, folder: Path, primary: int, quorum: int, down_after: int) -> None:
        super().__init__(folder)
        self._file = folder / "sentinel.conf"
        self._file.write_text(
            f"port {self.port}\ndir {folder}\nsentinel monitor {NAME} 127.0.0.1 {primary} "
            f"{quorum}\n"
            f"sentinel down-after-milliseconds {NAME} {down_after}\nsentinel "
            f"failover-timeout {NAME} 10000\n",
            encoding="utf-8",
        )

    def command(self) -> list[str]:
        return [self.program(), str(self._file), "--sentinel"]


@contextmanager
def sentinel_group(
    folder: Path, *, replicas: int = 1, sentinels: int = 3, down_after: int = 1000
) -> Iterator[Group]:
    """Run a primary with replicas, and Sentinels that know all of them."""
    with ExitStack() as stack:

        def start(server: RedisServer) -> RedisServer:
            return stack.enter_context(running(server))

        primary = start(RedisServer(made(folder / "primary")))
        follows = ("--replicaof", "127.0.0.1", str(primary.port))
        copies = [
            start(RedisServer(made(folder / f"replica-{n}"), *follows)) for n in range(replicas)
        ]
        until(lambda: all(replicates(copy) for copy in copies), "The replicas do not connect")
        watch = [
            start(
                Sentinel(
                    made(folder / f"sentinel-{n}"), primary.port, sentinels // 2 + 1, down_after
                )
            )
            for n in range(sentinels)
        ]
        known = (replicas, sentinels - 1)
        until(
            lambda: all(knows(each) == known for each in watch),
            "The Sentinels do not find each other",
        )
        yield Group(primary, copies, watch, clustered=False)


@contextmanager
def cluster_group(folder: Path, *, masters: int = 3, node_timeout: int = 2000) -> Iterator[Group]:
    """Run a cluster in which each master has one replica. The first master is the one to kill."""
    with ExitStack() as stack:
        nodes = [
            stack.enter_context(
                running(
                    RedisNode(made(folder / str(n)), "--cluster-node-timeout", str(node_timeout))
                )
            )
            for n in range(2 * masters)
        ]
        mains, copies = nodes[:masters], nodes[masters:]
        mains[0].join(mains[1:])
        for main, copy in zip(mains, copies, strict=True):
            copy.follow(main)
        until(lambda: all(replicates(copy) for copy in copies), "The replicas do not connect")
        until(
            lambda: all(node.knows(2 * masters) for node in nodes), "Not all nodes know each other"
        )
        yield Group(mains[0], list(copies), list(mains), clustered=True)


def made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def replicates(server: RedisServer) -> bool:
    with Redis(port=server.port) as client:
        return bool(client.info("replication").get("master_link_status") == "up")


def knows(sentinel: RedisServer) -> tuple[int, int] | None:
    """Return how many replicas, and how many other Sentinels, a Sentinel knows."""
    with suppress(RedisError), Redis(port=sentinel.port, decode_responses=True) as client:
        about = client.sentinel_master(NAME)
        return int(about["num-slaves"]), int(about["num-other-sentinels"])
    return None


def until(reached: Callable[[], bool], complaint: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, f"{complaint}."
        time.sleep(0.05)
