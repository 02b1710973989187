"""Histories of a compacted topic beside a model of it: `python -m tests.engine.compaction_model`.

Keys, tombstones, readers, groups, late joiners, checkpoints, restarts, copies of the directory as a
kill would leave it, backups; all drawn from a seed. After every look the topic has what the model
says, and not much more.

    python -m tests.engine.compaction_model [HISTORIES] [FIRST SEED] [STEPS]
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import flintmq
from flintmq.client.client import Client
from flintmq.engine import flushing, rewriting
from flintmq.engine.broker import Broker
from flintmq.engine.host import Host
from flintmq.engine.leading import compacting
from flintmq.storage import topic_log

TOPIC = "prices"
DROP_ROWS_MIN = 8


@contextmanager
def small_sizes() -> Iterator[None]:
    """Sizes that make everything happen with few messages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compacting, "LOOK_ROWS", 4)
        patch.setattr(compacting, "DROP_ROWS_MIN", DROP_ROWS_MIN)
        patch.setattr(compacting, "COMMAND_ROWS", 16)
        patch.setattr(rewriting, "DROPPED_MIN", 3)
        patch.setattr(rewriting, "GARBAGE_BYTES", 500)
        patch.setattr(rewriting, "SMALL_BYTES", 200)
        patch.setattr(rewriting, "SMALL_MAX", 3)
        patch.setattr(rewriting, "NEAR_ROWS", 1)
        patch.setattr(flushing, "OWN_SEGMENT_BYTES", 300)
        patch.setattr(topic_log, "OPEN_ROWS_MAX", 5)
        patch.setattr(Host, "first_file_bytes", 16 * 1024)
        yield


class Model:
    """What was published, and what of it counts."""

    def __init__(self) -> None:
        self.rows: list[tuple[str | None, bytes]] = []
        self.last: dict[str, int] = {}
        self.done = 0
        """Up to where the group has acknowledged."""
        self.began = 0
        """What was published when the group was made may have been compacted before."""

    def add(self, key: str | None, value: bytes) -> None:
        if key is not None:
            self.last[key] = len(self.rows)
        self.rows.append((key, value))

    def state(self, first: int = 0) -> list[int]:
        return sorted(at for at in self.last.values() if at >= first and self.rows[at][1])


class Story:
    def __init__(self, seed: int, place: Path) -> None:
        self.random, self.place = Random(seed), place
        self.model = Model()
        self.mq: Client | None = None
        self.joined: list[tuple[flintmq.Reader, int, int]] = []
        self.copies = 0
        self.has_group = False
        self.rewritten = 0

    async def open(self) -> Client:
        self.mq = flintmq.connect(f"file://{self.place}/data", fsync="never")
        await self.mq
        return self.mq

    async def run(self, steps: int) -> None:
        mq = await self.open()
        await mq.create_topic(TOPIC, compact="key")
        try:
            for _ in range(steps):
                await self._one()
            await self._look(self._mq)
        finally:
            await self._mq.close()

    @property
    def _mq(self) -> Client:
        assert self.mq is not None
        return self.mq

    async def _one(self) -> None:
        verbs: list[tuple[int, Any]] = [
            (40, self._publish), (6, self._settle), (8, self._checkpoint), (3, self._restart),
            (2, self._copy), (1, self._back_up), (5, self._join), (8, self._follow),
            (6, lambda: self._look(self._mq)),
        ]  # fmt: skip
        (verb,) = self.random.choices([one for _, one in verbs], [weight for weight, _ in verbs])
        await verb()

    async def _publish(self) -> None:
        random = self.random
        keys: list[str | bytes | None] = []
        values = []
        for _ in range(random.choice([1, 1, 3, 12])):
            key = f"k{int(random.random() ** 2 * 12)}" if random.random() < 0.99 else None
            value = b"" if random.random() < 0.1 else b"%d" % len(self.model.rows)
            self.model.add(key, value)
            keys.append(key)
            values.append(value)
        receipt = await self._mq.publish_batch(TOPIC, values, key=keys)
        assert receipt.offset == len(self.model.rows) - len(values)

    async def _settle(self) -> None:
        """The group gets every message since it began, in order, however many were superseded."""
        found = await self._mq.poll(
            TOPIC, "work", max=self.random.randint(1, 40), wait=0, order="log"
        )
        if not self.has_group:
            self.has_group = True
            self.model.began = len(self.model.rows)
        for message in found:
            assert (message.key, message.value) == self.model.rows[message.offset]
        await self._mq.ack(found)
        if found:
            expected = self.model.done
            for offset in (message.offset for message in found):
                gone = set(range(expected, offset))
                assert max(gone, default=-1) < self.model.began, "unread by a group, and gone"
                assert not gone & set(self.model.state()), "of the state, and gone"
                expected = offset + 1
            self.model.done = found[-1].offset + 1

    async def _checkpoint(self) -> None:
        await self._broker.host.checkpoint()

    @property
    def _broker(self) -> Broker:
        broker = self._mq._broker
        assert isinstance(broker, Broker)
        return broker

    async def _restart(self) -> None:
        await self._leave()
        await self._mq.close()
        await self.open()
        await self._look(self._mq)

    async def _copy(self) -> None:
        """What a kill would leave: the files as they are now, opened elsewhere."""
        await self._broker.settled()
        self.copies += 1
        spare = shutil.ignore_patterns("*.tmp")  # what is being written ahead of use
        place = self.place / f"copy-{self.copies}"
        shutil.copytree(self.place / "data", place, ignore=spare)
        await self._look_into(place)

    async def _back_up(self) -> None:
        self.copies += 1
        place = self.place / f"backup-{self.copies}"
        await self._mq.backup(place)
        await self._look_into(place)

    async def _look_into(self, place: Path) -> None:
        async with flintmq.connect(f"file://{place}", fsync="never") as copy:
            await self._look(copy)
        shutil.rmtree(place)

    async def _join(self) -> None:
        reader = await self._mq.reader(TOPIC, start="last_per_key")
        self.joined.append((reader, len(self.model.rows), -1))
        if len(self.joined) > 4:
            await self._finish(0)

    async def _follow(self) -> None:
        """Some late joiner reads on: only newest values of before, then what follows."""
        if self.joined:
            at = self.random.randrange(len(self.joined))
            reader, end, last = self.joined[at]
            for message in await reader.read_batch(self.random.randint(1, 20), timeout=0):
                last = self._check_joined(message, end, last)
            self.joined[at] = reader, end, last

    def _check_joined(self, message: flintmq.Message, end: int, last: int) -> int:
        offset = message.offset
        assert offset is not None
        assert offset > last, "in order, and none twice"
        assert (message.key, message.value) == self.model.rows[offset]
        for gap in range(max(last + 1, 0), offset):  # what was passed over
            key, value = self.model.rows[gap]
            if gap >= end:
                assert key is not None, "messages without a key stay"
                assert self.model.last[key] > gap, "only what is superseded by now is left out"
            else:
                newest = self.model.last.get(key or "", -1)
                assert newest != gap or key is None or not value, "a key of the state is missing"
        if offset < end:
            before = [at for at in range(offset + 1, end) if self.model.rows[at][0] == message.key]
            assert not before, "the newest of its key when the reader joined"
        return offset

    async def _finish(self, at: int) -> None:
        reader, end, last = self.joined.pop(at)
        while rows := await reader.read_batch(100, timeout=0):
            for message in rows:
                last = self._check_joined(message, end, last)
        left = [one for one in self.model.state() if one > last]
        assert not left, "a late joiner comes to have the whole state"
        await reader.close()

    async def _leave(self) -> None:
        while self.joined:
            await self._finish(0)

    async def _look(self, mq: Client) -> None:
        """Everything there is."""
        found: dict[int, tuple[Any, bytes]] = {}
        async with mq.reader(TOPIC) as reader:
            while rows := await reader.read_batch(1000, timeout=0):
                for message in rows:
                    assert message.offset is not None
                    found[message.offset] = (message.key, message.value)
        model = self.model
        for offset, row in found.items():
            assert row == model.rows[offset]
        done = model.done if self.has_group else len(model.rows)
        needed = {*model.state(), *(at for at, (key, _) in enumerate(model.rows) if key is None)}
        needed |= set(range(max(done, model.began), len(model.rows)))
        assert needed <= found.keys(), f"lost: {sorted(needed - found.keys())}"
        async with mq.reader(TOPIC, start="last_per_key") as reader:
            state: list[int | None] = []
            while rows := await reader.read_batch(7, timeout=0):
                state += rows.offsets
        assert state == model.state()


async def history(seed: int, steps: int) -> int:
    with TemporaryDirectory() as place, small_sizes():
        story = Story(seed, Path(place))
        await story.run(steps)
        return len(story.model.rows)


def main(histories: int = 200, first: int = 0, steps: int = 150) -> int:
    began, rows = time.perf_counter(), 0
    for seed in range(first, first + histories):
        try:
            rows += asyncio.run(history(seed, steps))
        except BaseException:
            print(f"history {seed} of {steps} steps:", file=sys.stderr)
            raise
    seconds = time.perf_counter() - began
    print(f"{histories} histories from seed {first}, {rows:,} messages, {seconds:.0f} s: as said")
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
