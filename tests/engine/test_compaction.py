"""Compaction on the disk: files shrink, offsets stay, and a model agrees with random histories."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

import flintmq
from flintmq.broker_api import Fetch
from flintmq.engine import rewriting
from flintmq.engine.broker import Broker
from flintmq.storage.topic_log import TopicLog

from .compaction_model import TOPIC, history, small_sizes


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1003))
async def test_a_history_holds_what_its_model_says(seed: int) -> None:
    await history(seed, 80)


async def test_segments_are_written_anew_without_what_was_dropped(tmp_path: Path) -> None:
    with small_sizes():
        async with flintmq.connect(f"file://{tmp_path}/data", fsync="never") as mq:
            await mq.create_topic(TOPIC, compact="key")
            await mq.publish(TOPIC, b"first", key="pinned")
            broker = mq._broker
            assert isinstance(broker, Broker)
            log = broker.shard.topics[TOPIC].log
            assert isinstance(log, TopicLog)
            for n in range(60):
                await mq.publish_batch(
                    TOPIC, [b"x" * 50] * 20, key=[f"k{i % 5}" for i in range(20)]
                )
                if n % 5 == 4:
                    await broker.host.checkpoint()
            await broker.settled()
            await broker.host.checkpoint()
            await broker.host.checkpoint()
            assert (log.first_offset, log.next_offset) == (0, 1201)
            assert len(log.sections) < 8
            assert sum(section.size for section in log.sections) < 10_000, "of 60,000 bytes"
        async with flintmq.connect(f"file://{tmp_path}/data") as mq, mq.reader(TOPIC) as reader:
            rows: list[flintmq.Message] = []
            while found := await reader.read_batch(10_000, timeout=0):
                rows += found
            assert rows[0].value == b"first"
            assert {message.key for message in rows} == {"pinned", *(f"k{n}" for n in range(5))}
            assert rows[-1].offset == 1200
            assert len(rows) < 200


async def test_a_search_by_time_and_a_fetch_pass_over_holes(tmp_path: Path) -> None:
    with small_sizes():
        async with flintmq.connect(f"file://{tmp_path}/data", fsync="never") as mq:
            await mq.create_topic(TOPIC, compact="key")
            await mq.publish(TOPIC, b"first", key="pinned")
            broker = mq._broker
            assert isinstance(broker, Broker)
            for _ in range(20):
                await mq.publish_batch(TOPIC, [b"x" * 50] * 20, key=["k"] * 20)
                await broker.host.checkpoint()
            times: list[tuple[datetime, int | None]] = []
            async with mq.reader(TOPIC) as reader:
                while found := await reader.read_batch(10_000, timeout=0):
                    times += [(message.time, message.offset) for message in found]
            for time, offset in times:
                async with mq.reader(TOPIC, start=time) as reader:
                    first = (await reader.read()).offset
                    assert first is not None
                    assert offset is not None
                    assert first <= offset
            fetched = await broker.fetch(Fetch(TOPIC, 1, max_rows=10_000))
            assert fetched.position > 300


async def _updates(mq: flintmq.Client, count: int) -> None:
    for start in range(0, count, 20):
        numbers = range(start, start + 20)
        await mq.publish_batch(TOPIC, [b"x" * 50] * 20, key=[f"k{n % 5}" for n in numbers])


async def test_what_is_dropped_before_a_checkpoint_never_comes_to_the_disk(tmp_path: Path) -> None:
    with small_sizes():
        async with flintmq.connect(f"file://{tmp_path}/data", fsync="never") as mq:
            await mq.create_topic(TOPIC, compact="key")
            await mq.publish(TOPIC, b"first", key="pinned")
            await _updates(mq, 1000)
            broker = mq._broker
            assert isinstance(broker, Broker)
            await broker.settled()
            await broker.host.checkpoint()
            log = broker.shard.topics[TOPIC].log
            assert isinstance(log, TopicLog)
            (section,) = log.sections
            assert (section.base, section.next) == (0, 1001)
            assert section.size < 10_000, "of 50,000 bytes"
        async with flintmq.connect(f"file://{tmp_path}/data") as mq, mq.reader(TOPIC) as reader:
            rows = await reader.read_batch(10_000, timeout=0)
            assert (rows[0].value, rows[-1].offset) == (b"first", 1000)


async def test_sections_are_written_anew_once_there_is_enough_to_be_gained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_sizes():
        monkeypatch.setattr(rewriting, "GARBAGE_BYTES", 1 << 40)
        monkeypatch.setattr(rewriting, "SMALL_BYTES", 0)
        async with flintmq.connect(f"file://{tmp_path}/data", fsync="never") as mq:
            await mq.create_topic(TOPIC, compact="key")
            await mq.publish(TOPIC, b"first", key="pinned")
            broker = mq._broker
            assert isinstance(broker, Broker)
            for _ in range(4):
                await mq.publish_batch(TOPIC, [b"x" * 50] * 5, key=[f"k{n}" for n in range(5)])
                await broker.host.checkpoint()
            await _updates(mq, 100)
            await broker.settled()
            log = broker.shard.topics[TOPIC].log
            assert isinstance(log, TopicLog)
            before = [section.file for section in log.sections]
            await broker.host.checkpoint()
            assert [section.file for section in log.sections[:4]] == before
            monkeypatch.setattr(rewriting, "GARBAGE_BYTES", 100)
            await _updates(mq, 20)
            await broker.host.checkpoint()
            assert not {section.file for section in log.sections} & set(before)
