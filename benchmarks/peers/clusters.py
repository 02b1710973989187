"""Clusters of three nodes on this machine: how each is started, and what it is told.

All nodes share the machine and its disk, so figures compare brokers, not machines. An address has
all three nodes, by commas.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ..processes import START_SECONDS, DidNotStart, free_port, server, stop
from .install import Installed
from .servers import (
    ROOT,
    Running,
    Start,
    nats_settings,
    rabbitmq_environment,
    rabbitmq_settings,
)

NODES = 3
HOST = "127.0.0.1"
READY = "nodes are ready at flint://"
COOKIE = "benchmark"


def cluster_starters(installed: Installed) -> dict[str, Start]:
    """By the names that the table of cluster modes uses."""
    has = installed.servers
    return {
        "flintmq-always": lambda folder: _flintmq(folder, "always"),
        "flintmq-interval": lambda folder: _flintmq(folder, "interval:1000"),
        "nats-fsync": lambda folder: _nats(has["nats"], folder, sync_always=True),
        "nats-default": lambda folder: _nats(has["nats"], folder, sync_always=False),
        "rabbitmq-fsync": lambda folder: _rabbitmq(has["rabbitmq"], folder, syncs=True),
        "rabbitmq-never": lambda folder: _rabbitmq(has["rabbitmq"], folder, syncs=False),
    }


@contextmanager
def _flintmq(folder: Path, fsync: str) -> Iterator[Running]:
    log = folder / "log"
    command = [
        sys.executable, "-m", "flintmq.cli", "cluster", "run", "--nodes", str(NODES),
        "--data-dir", str(folder / "data"), "--base-port", "0",
    ]  # fmt: skip
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "FLINTMQ_FSYNC": fsync, "PYTHONUNBUFFERED": "1"},
            cwd=ROOT,
            start_new_session=True,
        )
        try:
            wait_for(lambda: READY in log.read_text(), log, process)
            yield Running(log.read_text().partition(READY)[2].split()[0], process.pid)
        finally:
            stop(process)


def nats_cluster_settings(
    number: int, ports: list[int], routes: list[int], monitor: int, store: Path, sync_always: bool
) -> str:
    others = ", ".join(f"nats-route://{HOST}:{port}" for port in routes)
    return (
        nats_settings(ports[number], store, sync_always=sync_always)
        + f"server_name: n{number}\nhttp: {HOST}:{monitor}\n"
        + f"cluster {{ name: bench, listen: {HOST}:{routes[number]}, routes: [{others}] }}\n"
    )


@contextmanager
def _nats(binary: Path, folder: Path, *, sync_always: bool) -> Iterator[Running]:
    ports, routes, monitors = ([free_port() for _ in range(NODES)] for _ in range(3))
    with ExitStack() as stack:
        pids: list[int] = []
        for number in range(NODES):
            place = folder / f"n{number}"
            place.mkdir()
            settings = place / "nats.conf"
            text = nats_cluster_settings(
                number, ports, routes, monitors[number], place / "data", sync_always
            )
            settings.write_text(text)
            process = stack.enter_context(
                server([str(binary), "-c", str(settings)], place / "log", port=ports[number])
            )
            pids.append(process.pid)
        for number, monitor in enumerate(monitors):
            wait_for(lambda at=monitor: _nats_is_whole(at), folder / f"n{number}" / "log")  # type: ignore[misc]
        yield Running(addresses(ports), pids[0], tuple(pids[1:]))


def _nats_is_whole(monitor: int) -> bool:
    """Whether there is a leader of JetStream's own group, and all nodes belong to it."""
    try:
        with urllib.request.urlopen(f"http://{HOST}:{monitor}/jsz", timeout=2) as answer:
            meta = json.load(answer).get("meta_cluster", {})
    except OSError:
        return False
    return bool(meta.get("leader")) and meta.get("cluster_size") == NODES


@contextmanager
def _rabbitmq(script: Path, folder: Path, *, syncs: bool) -> Iterator[Running]:
    """One after the other: the first founds the cluster, the others find it."""
    ports, epmd_port = [free_port() for _ in range(NODES)], free_port()
    erlang = script.parents[4] / "erlang"
    formation = "cluster_formation.peer_discovery_backend = classic_config\n"
    formation += "cluster_formation.discovery_retry_limit = 2\n"
    for number in range(NODES):
        formation += f"cluster_formation.classic_config.nodes.{number + 1} = n{number}@localhost\n"
    with ExitStack() as stack:
        epmd = next(erlang.glob("erts-*/bin/epmd"))
        command = [str(epmd), "-port", str(epmd_port), "-address", HOST]
        stack.enter_context(server(command, folder / "epmd.log", port=epmd_port))
        pids: list[int] = []
        for number, port in enumerate(ports):
            place = folder / f"n{number}"
            place.mkdir()
            (place / "rabbitmq.conf").write_text(rabbitmq_settings(port) + formation)
            (place / "enabled_plugins").write_text("[].\n")
            environment = rabbitmq_environment(place, erlang, epmd_port, free_port())
            environment["RABBITMQ_NODENAME"] = f"n{number}@localhost"
            environment["RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS"] += f" -setcookie {COOKIE}"
            if not syncs:
                advanced = place / "advanced.config"
                advanced.write_text("[{ra, [{wal_sync_method, none}]}].\n")
                environment["RABBITMQ_ADVANCED_CONFIG_FILE"] = str(advanced)
            process = stack.enter_context(
                server([str(script)], place / "log.txt", port=port, environment=environment)
            )
            pids.append(process.pid)
        yield Running(addresses(ports), pids[0], tuple(pids[1:]))


def addresses(ports: list[int]) -> str:
    return ",".join(f"{HOST}:{port}" for port in ports)


def wait_for(
    is_so: Callable[[], bool], log: Path, process: subprocess.Popen[bytes] | None = None
) -> None:
    give_up_at = time.monotonic() + START_SECONDS
    while time.monotonic() < give_up_at and (process is None or process.poll() is None):
        if is_so():
            return
        time.sleep(0.1)
    said = " ".join(log.read_text(errors="replace").split())[-300:]
    raise DidNotStart(said or "it did not become a cluster in time")
