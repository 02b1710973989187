"""The ways of running a broker. A new way is one more line in WAYS; the promises stay the same."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Protocol
from zlib import crc32

import pytest

import flintmq
from flintmq.cluster.shard_host import RECLAIM_SECONDS
from flintmq.engine.broker import Broker
from flintmq.engine.host import Host
from flintmq.testing import ManualClock

from ..effort import ways_of
from .over_blocking import NOT_OF_THREADS, BlockingClock, connect_over_blocking
from .over_cluster import FIRST, OTHER, connect_over_cluster
from .over_network import NOT_OF_NETWORKS, connect_over_network, connect_over_tls, connect_with_key
from .over_stops import NOT_WITH_STOPS, STOPS, connect_with_stops
from .queues import GraceEnds

WAYS = {
    "memory": "memory://",
    "memory-blocking": "memory://",
    "file": "file://{directory}",
    "file-blocking": "file://{directory}",
    "flint": "memory://",
    "flint-blocking": "memory://",
    "flint-file": "file://{directory}",
    "flint-keys": "memory://",
    "flints": "memory://",
    "cluster": "{directory}",
    "cluster-other": "{directory}",
}
if STOPS in os.environ:
    WAYS["cluster-stops"] = "{directory}"
SLOW = (
    "memory-blocking",
    "file-blocking",
    "flint-blocking",
    "flint-file",
    "flint-keys",
    "flints",
    "cluster",
    "cluster-other",
)
FIRST_FILE_BYTES = 16 * 1024
"""A test's journal begins small: writing zeros ahead is what opening costs."""


class Connect(Protocol):
    """Opens a broker of its own; options as for `flintmq.connect`. Closed after the test."""

    def __call__(self, **options: Any) -> flintmq.Client: ...


def why_not(way: str, *names: str) -> str | None:
    """Why a test, a test with its parameters or a file makes no promise on a way of running."""
    excepted: dict[str, str] = {}
    if way.endswith("-blocking"):
        excepted |= NOT_OF_THREADS
    if way.startswith("flint"):
        excepted |= NOT_OF_NETWORKS
    if way == "cluster-stops":
        excepted |= NOT_OF_NETWORKS | NOT_WITH_STOPS
    return next((excepted[name] for name in names if name in excepted), None)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test of the contract runs on the ways that tests/effort.py says."""
    chosen = any(mark.args[0] == "way" for mark in metafunc.definition.iter_markers("parametrize"))
    if chosen or hasattr(metafunc.module, "way") or "way" not in metafunc.fixturenames:
        return  # a test or a file that is about some ways only names them itself
    name, file = metafunc.function.__name__, metafunc.definition.path.name
    promised = [way for way in sorted(WAYS) if why_not(way, name, file) is None]
    ways = ways_of(name, promised, metafunc.config.option.effort)
    params = [pytest.param(way, marks=pytest.mark.slow if way in SLOW else ()) for way in ways]
    metafunc.parametrize("way", params, indirect=True)


@pytest.fixture
def way(request: pytest.FixtureRequest) -> str:
    if reason := why_not(request.param, request.node.originalname, request.node.name):
        pytest.skip(reason)
    return str(request.param)


@pytest.fixture
def url(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(Host, "first_file_bytes", FIRST_FILE_BYTES)
    return WAYS[way].format(directory=tmp_path / "data")


@pytest.fixture
def clock(way: str) -> ManualClock:
    return BlockingClock() if way.endswith("-blocking") else ManualClock()


@pytest.fixture
def grace_ends(way: str, clock: ManualClock) -> GraceEnds:
    """Where the lead may change, what was handed out is kept for its holder for some seconds, also
    if the answer was lost and nobody has heard of it. Elsewhere nothing is to be waited for."""

    async def grace_ends() -> None:
        if way == "cluster-stops":
            await clock.advance(RECLAIM_SECONDS + 0.1)

    return grace_ends


def connect_at(url: str, clock: ManualClock, way: str = "", **options: Any) -> flintmq.Client:
    if way == "flint-blocking":
        return connect_over_blocking(
            url, **{"clock": clock, "make": connect_over_network, **options}
        )
    if way == "cluster-stops":
        test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
        seed = crc32(f"{test} {os.environ.get(STOPS)}".encode())
        return connect_with_stops(Path(url), seed, **{"clock": clock, **options})
    if way.startswith("cluster"):
        at = FIRST if way == "cluster" else OTHER
        return connect_over_cluster(Path(url), at, **{"clock": clock, **options})
    if way == "flint-keys":
        return connect_with_key(url, **{"clock": clock, **options})
    if way == "flints":
        return connect_over_tls(url, **{"clock": clock, **options})
    if way.startswith("flint"):
        return connect_over_network(url, **{"clock": clock, **options})
    if isinstance(clock, BlockingClock):
        return connect_over_blocking(url, **{"clock": clock, **options})
    client = flintmq.connect(url, **{"clock": clock, **options})
    if isinstance(client._broker, Broker):
        clock.wait_also_for(client._broker.settled)
    return client


@pytest.fixture
async def connect(url: str, clock: ManualClock, way: str) -> AsyncIterator[Connect]:
    opened: list[flintmq.Client] = []

    def connect_here(**options: Any) -> flintmq.Client:
        # Every broker has a directory of its own, as every memory:// is a broker of its own.
        place = url if url == "memory://" else f"{url}-{len(opened)}"
        client = connect_at(place, clock, way, **options)
        opened.append(client)
        return client

    yield connect_here
    for client in opened:
        await client.close()


@pytest.fixture
async def mq(connect: Connect) -> AsyncIterator[flintmq.Client]:
    async with connect() as client:
        yield client
