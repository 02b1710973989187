"""Thousands of small topics: what a checkpoint and an open cost, in syncs, files and time."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from flintmq.client.client import Client
from flintmq.engine.host import durable_broker
from flintmq.serde.codec import Codec
from flintmq.storage.filesystem import LocalFile, LocalFileSystem

from ..disks import data_directory
from ..scenario import Case, Column, Figures, Scenario, Settings
from ..workloads import MIB, WrongResult
from .memory import resident_bytes

IN_FLIGHT = 256


class CountingFile(LocalFile):
    counts: CountingFileSystem

    def sync(self) -> None:
        self.counts.syncs += 1
        super().sync()

    def sync_all(self) -> None:
        self.counts.syncs += 1
        super().sync_all()


class CountingFileSystem(LocalFileSystem):
    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.syncs = 0

    def _open(self, operation: str, name: str, flags: int) -> LocalFile:
        file = super()._open(operation, name, flags)
        counting = CountingFile(file.name, file._descriptor)
        counting.counts = self
        return counting

    def sync_directory(self, directory: str = "") -> None:
        self.syncs += 1
        super().sync_directory(directory)


@dataclass(frozen=True, slots=True)
class Workload:
    topics: int

    async def run(self, settings: Settings) -> Figures:
        names = [f"topic-{number}" for number in range(settings.pick(self.topics, 50))]
        with data_directory() as directory:
            figures = await self._fill(directory / "data", names)
            return {**figures, **await self._open_again(directory / "data", names)}

    async def _fill(self, directory: Path, names: list[str]) -> dict[str, float]:
        filesystem = CountingFileSystem(directory)
        broker = durable_broker(filesystem)
        async with Client(broker, Codec(), auto_create=True, timeout=30) as mq:
            start = perf_counter()
            await _publish_to_each(mq, names)
            first = perf_counter() - start
            start = perf_counter()
            await _publish_to_each(mq, names)
            again = perf_counter() - start
            syncs, start = filesystem.syncs, perf_counter()
            await broker.host.checkpoint()
            return {
                "first": len(names) / first,
                "again": len(names) / again,
                "checkpoint": perf_counter() - start,
                "syncs": filesystem.syncs - syncs,
            }

    async def _open_again(self, directory: Path, names: list[str]) -> dict[str, float]:
        start = perf_counter()
        async with Client(
            durable_broker(CountingFileSystem(directory)), Codec(), auto_create=False, timeout=30
        ) as mq:
            opened = perf_counter() - start
            for name in names:
                async with mq.reader(name) as reader:
                    if len(await reader.read_batch(10, timeout=0)) != 2:
                        raise WrongResult(f"{name} does not have its two messages")
            return {
                "open": opened,
                "files": _open_files(directory),
                "resident": resident_bytes() / MIB,
            }


async def _publish_to_each(mq: Client, names: list[str]) -> None:
    left = iter(names)

    async def publish() -> None:
        for name in left:
            await mq.publish(name, b"%0100d" % len(name))

    await asyncio.gather(*(publish() for _ in range(IN_FLIGHT)))


def _open_files(directory: Path) -> int:
    """The files below a directory that this process holds open."""
    held = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            held += os.readlink(f"/proc/self/fd/{name}").startswith(str(directory))
        except FileNotFoundError:  # the descriptor that lists them
            continue
    return held


SCENARIO = Scenario(
    title="thousands of durable topics: publish to each, checkpoint, open again, read each",
    columns=(
        Column("first", "made/s", "rate"),
        Column("again", "published/s", "rate"),
        Column("checkpoint", "checkpoint", "seconds"),
        Column("syncs", "syncs", "count"),
        Column("open", "open s", "seconds", with_range=True),
        Column("files", "files", "count"),
        Column("resident", "RSS MiB", "MiB"),
    ),
    cases={"5,000 topics": Case(Workload(5_000).run)},
    notes=("checkpoint, open: seconds. syncs: of the checkpoint. files: open, every topic read.",),
    every_loop=False,
)
