"""Clusters of three real processes that the same faults are done to: ours, and NATS R3.

Each node has a disk of its own, so that its power can be cut. Whoever publishes waits for the
receipt, and sends the same again, under the same identity, until there is one.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import flintmq
from tests.chaos.cluster import ChaosCluster
from tests.integration.loop_disk import LoopDisk
from tests.patience import free_port, until

NODES = 3
TOPIC = "ledger"
READS_MAX = 4
PADDING = "." * 250
"""So that there are files of some size before long."""


class Publishing(Protocol):
    async def publish(self, number: int) -> None:
        """Returns once it is acknowledged. Raises where it may or may not be."""
        ...

    async def close(self) -> None: ...


class Subject(Protocol):
    name: str
    disks: list[LoopDisk]

    async def open(self) -> None: ...
    async def close(self) -> None: ...
    async def publishing(self) -> Publishing: ...
    async def read_all(self) -> list[int]: ...
    async def leader(self) -> int: ...
    def pid(self, at: int) -> int: ...
    def is_up(self, at: int) -> bool: ...
    def kill(self, at: int) -> None: ...
    async def start(self, at: int) -> None: ...
    def data_files(self, at: int) -> list[Path]:
        """Where messages lie that were there for a while."""
        ...

    def snapshot_files(self, at: int) -> list[Path]:
        """What says what is in them."""
        ...

    async def wipe(self, at: int) -> None:
        """The disk of a node that is down is empty; have it, or another, take part again."""
        ...

    async def lead_elsewhere(self, to: int) -> None:
        """Have that node lead, if it will."""
        ...


def pause(subject: Subject, at: int) -> None:
    os.kill(subject.pid(at), signal.SIGSTOP)


def go_on(subject: Subject, at: int) -> None:
    os.kill(subject.pid(at), signal.SIGCONT)


async def follower(subject: Subject) -> int:
    leader = await subject.leader()
    return next(at for at in range(NODES) if at != leader and subject.is_up(at))


def cut_power(subject: Subject, at: int) -> None:
    subject.disks[at].cut_power()


def power_returns(subject: Subject, at: int) -> None:
    if subject.is_up(at):
        subject.kill(at)
    subject.disks[at].unmount()
    subject.disks[at].mount()


async def start_all(subject: Subject) -> None:
    down = [at for at in range(NODES) if not subject.is_up(at)]
    await asyncio.gather(*map(subject.start, down))


# --- ours


class FlintPublishing:
    def __init__(self, mq: flintmq.Client) -> None:
        self._mq = mq

    async def publish(self, number: int) -> None:
        await self._mq.publish(TOPIC, [number, PADDING], timeout=60)

    async def close(self) -> None:
        await self._mq.close()


class FlintCluster:
    name = "FlintMQ"

    def __init__(self, place: Path, disks: list[LoopDisk]) -> None:
        self.disks = disks
        self.cluster = ChaosCluster(place, disks)

    async def open(self) -> None:
        await self.cluster.open()
        await self.cluster.start()
        async with flintmq.connect(self.cluster.url) as mq:
            await mq.create_topic(TOPIC, retention_bytes=None)

    async def close(self) -> None:
        self.cluster.leave()
        await self.cluster.close()

    async def publishing(self) -> FlintPublishing:
        return FlintPublishing(await flintmq.connect(self.cluster.url))

    async def read_all(self) -> list[int]:
        found: list[int] = []
        async with (
            flintmq.connect(self.cluster.url) as mq,
            mq.reader(TOPIC, start="earliest") as reader,
        ):
            end = (await mq.topic_stats(TOPIC)).next_offset
            while len(found) < end and (rows := await reader.read_batch(10_000, timeout=30)):
                found += [row.decode()[0] for row in rows]
        return found

    async def leader(self) -> int:
        return await self.cluster.leading()

    def pid(self, at: int) -> int:
        return self.cluster.nodes[at].pid

    def is_up(self, at: int) -> bool:
        return self.cluster.nodes[at].is_up()

    def kill(self, at: int) -> None:
        self.cluster.nodes[at].kill()

    async def start(self, at: int) -> None:
        await asyncio.to_thread(self.cluster.nodes[at].start)

    def data_files(self, at: int) -> list[Path]:
        return sorted((self.cluster.nodes[at].directory / "segments").glob("*.seg"))

    def snapshot_files(self, at: int) -> list[Path]:
        return [self.cluster.nodes[at].directory / "manifest"]

    async def wipe(self, at: int) -> None:
        await self.cluster.replace(at)

    async def lead_elsewhere(self, to: int) -> None:
        with suppress(AssertionError):  # it does not vote yet, or is not fit
            await self.cluster.votes(self.cluster.names[to])
            await self.cluster.ask("transfer", self.cluster.names[to])
            await until(lambda: self.cluster.leader() == to, "it leads")


# --- NATS


class NatsPublishing:
    def __init__(self, connection: Any) -> None:
        self._connection, self._jetstream = connection, connection.jetstream(timeout=2)

    async def publish(self, number: int) -> None:
        headers = {"Nats-Msg-Id": str(number)}
        while True:
            with suppress(Exception):
                value = f"{number} {PADDING}".encode()
                await self._jetstream.publish(TOPIC, value, headers=headers)
                return
            await asyncio.sleep(0.05)

    async def close(self) -> None:
        with suppress(Exception):
            await self._connection.close()


class NatsCluster:
    def __init__(self, place: Path, disks: list[LoopDisk], *, sync_always: bool) -> None:
        self.name = "NATS R3, sync always" if sync_always else "NATS R3, default"
        self.disks, self._place, self._sync_always = disks, place, sync_always
        self._binary, self._nats = nats_parts()
        self._ports, self._routes, self._monitors = (
            [free_port() for _ in range(NODES)] for _ in range(3)
        )
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * NODES

    async def open(self) -> None:
        for at in range(NODES):
            self._launch(at)
        await until(lambda: self._size() == NODES, "the cluster is whole")
        connection = await self._connect()
        wanted = {"name": TOPIC, "subjects": [TOPIC], "num_replicas": NODES, "storage": "file"}
        for left in range(9, -1, -1):  # right after an election, nobody may answer
            try:
                await connection.jetstream(timeout=3).add_stream(**wanted, duplicate_window=600)
                break
            except Exception:
                if not left:
                    raise
        await connection.close()

    def _launch(self, at: int) -> None:
        others = ", ".join(f"nats-route://127.0.0.1:{port}" for port in self._routes)
        always = "sync_interval: always" if self._sync_always else ""
        settings = self._place / f"n{at}.conf"
        settings.write_text(
            f"listen: 127.0.0.1:{self._ports[at]}\nserver_name: n{at}\n"
            f"http: 127.0.0.1:{self._monitors[at]}\n"
            f'jetstream {{ store_dir: "{self.disks[at].path / "data"}"\n{always} }}\n'
            f"cluster {{ name: c, listen: 127.0.0.1:{self._routes[at]}, routes: [{others}] }}\n"
        )
        with (self._place / f"n{at}.log").open("ab") as log:
            self._processes[at] = subprocess.Popen(
                [str(self._binary), "-c", str(settings)], stdout=log, stderr=log
            )

    async def close(self) -> None:
        for at in range(NODES):
            if self.is_up(at):
                go_on(self, at)
                self.kill(at)

    async def _connect(self) -> Any:
        return await self._nats.connect(
            [f"nats://127.0.0.1:{port}" for port in self._ports],
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.1,
            error_cb=_ignore,
        )

    async def publishing(self) -> NatsPublishing:
        return NatsPublishing(await self._connect())

    async def read_all(self) -> list[int]:
        """Nothing where the stream is gone. A consumer may be lost with a node: then once more."""
        best: list[int] = []
        for _ in range(READS_MAX):
            stored, found = await self._read()
            best = max(best, found, key=len)
            if stored and len(best) >= stored:
                break
        return best

    async def _read(self) -> tuple[int, list[int]]:
        """How many the stream says it has, and what came."""
        connection = await self._connect()
        found: list[int] = []
        try:
            jetstream = connection.jetstream(timeout=5)
            taking: Any = None
            for _ in range(40):  # who leads the stream may have to be elected
                with suppress(Exception):
                    taking = await jetstream.pull_subscribe(TOPIC)
                    break
                await asyncio.sleep(0.5)
            if taking is None:
                return 0, []
            stored = (await jetstream.stream_info(TOPIC)).state.messages
            while True:
                try:
                    messages = await taking.fetch(500, timeout=5)
                except Exception:
                    return stored, found
                found += [int(one.data.split()[0]) for one in messages]
                await asyncio.gather(*(one.ack() for one in messages))
        finally:
            await connection.close()

    def _monitor(self, at: int, what: str) -> dict[str, Any]:
        with suppress(OSError, ValueError):
            url = f"http://127.0.0.1:{self._monitors[at]}/{what}"
            with urllib.request.urlopen(url, timeout=1) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        return {}

    def _size(self) -> int:
        size = 0
        for at in range(NODES):
            meta = self._monitor(at, "jsz").get("meta_cluster", {})
            if meta.get("leader"):
                size = max(size, int(meta.get("cluster_size", 0)))
        return size

    async def leader(self) -> int:
        """Of the stream."""
        found: list[int] = []

        async def is_led() -> bool:
            for at in range(NODES):
                if not self.is_up(at):
                    continue
                told = await asyncio.to_thread(self._monitor, at, "jsz?streams=true&accounts=true")
                for account in told.get("account_details", []):
                    for stream in account.get("stream_detail", []):
                        name = stream.get("cluster", {}).get("leader")
                        if name and self.is_up(int(name[1:])):
                            found[:] = [int(name[1:])]
                            return True
            return False

        with suppress(AssertionError):
            await asyncio.wait_for(until(is_led, "somebody leads"), 30)
        return found[0] if found else 0

    def pid(self, at: int) -> int:
        process = self._processes[at]
        assert process is not None
        return process.pid

    def is_up(self, at: int) -> bool:
        process = self._processes[at]
        return process is not None and process.poll() is None

    def kill(self, at: int) -> None:
        process = self._processes[at]
        assert process is not None
        process.kill()
        process.wait()

    async def start(self, at: int) -> None:
        self._launch(at)
        await asyncio.sleep(1)

    def data_files(self, at: int) -> list[Path]:
        return sorted((self.disks[at].path / "data").glob(f"**/streams/{TOPIC}/msgs/*.blk"))

    def snapshot_files(self, at: int) -> list[Path]:
        return sorted((self.disks[at].path / "data").glob("**/snapshots/*"))

    async def wipe(self, at: int) -> None:
        await asyncio.to_thread(shutil.rmtree, self.disks[at].path / "data", ignore_errors=True)
        await self.start(at)

    async def lead_elsewhere(self, to: int) -> None:
        for _ in range(6):
            with suppress(Exception):
                if await self.leader() == to:
                    return
                connection = await self._connect()
                subject = f"$JS.API.STREAM.LEADER.STEPDOWN.{TOPIC}"
                await connection.request(subject, b"", timeout=5)
                await connection.close()
            await asyncio.sleep(1)


async def _ignore(_: Exception) -> None: ...


def nats_parts() -> tuple[Path, Any]:
    """The server, and the client. Raises CannotInstall."""
    from benchmarks.installing import PEERS, install_python
    from benchmarks.peers.install import CLIENTS, NATS_SERVER

    place = PEERS / "nats"
    install_python(place, [NATS_SERVER, CLIENTS["nats"]])
    binary = place / "bin" / "nats-server"
    sys.path.append(str(next(place.glob("lib/python*/site-packages"))))
    import nats

    return binary, nats
