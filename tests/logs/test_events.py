"""What the broker says of itself: one line for each thing worth waking up for."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import flintmq
from flintmq.engine import checkpoints
from flintmq.engine.slow_disks import is_stalled
from flintmq.errors import StorageFull
from flintmq.observe.logs import event_of
from flintmq.testing import SimulatedFileSystem
from tests.engine.stepping import OWN_SEGMENT_BYTES, Life, Story, small_sizes


@pytest.fixture(autouse=True)
def told(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    caplog.set_level(logging.INFO, "flintmq")
    with small_sizes():
        yield caplog


def events(caplog: pytest.LogCaptureFixture, name: str) -> list[dict[str, Any]]:
    return [
        dict(fields) for record in caplog.records for event, fields in [event_of(record)]
        if event == name
    ]  # fmt: skip


async def test_recovery_tells_what_it_found(caplog: pytest.LogCaptureFixture) -> None:
    disk, story = SimulatedFileSystem(), Story()
    await story.open(disk)
    await story.create("orders")
    await story.publish("orders", 3)
    caplog.clear()

    again = await Life(disk.crash("nothing")).open()

    (line,) = events(caplog, "recovered")
    assert (line["topics"], line["groups"], line["messages"]) == (1, 0, 3)
    assert line["records_replayed"] == 2
    assert line["torn_bytes"] == 0
    assert again.broker.host.recovery is not None
    assert again.broker.host.recovery.messages == 3
    assert events(caplog, "journal_cut") == []


async def test_a_torn_journal_is_told(caplog: pytest.LogCaptureFixture) -> None:
    disk, story = SimulatedFileSystem(), Story()
    life = await story.open(disk)
    await story.create("orders")
    await life.publish("orders", b"half of this is on the disk")
    (name,) = (name for name in disk.list("journal") if name.endswith("1"))
    written = disk.contents(f"journal/{name}").index(b"half of this")
    left = disk.crash("everything")
    left.flip(f"journal/{name}", written)
    caplog.clear()

    await Life(left).open()

    (cut,) = events(caplog, "journal_cut")
    assert "torn-" in cut["saved_as"]
    (line,) = events(caplog, "recovered")
    assert line["torn_bytes"] == cut["bytes"] > 0
    assert line["messages"] == 0


async def test_a_full_disk_is_told_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    disk, story = SimulatedFileSystem(), Story()
    life = await story.open(disk)
    await story.create("orders")
    await story.publish("orders", 2, size=OWN_SEGMENT_BYTES)
    disk.fail("pwritev", name="manifest", error=28, times=3)
    for _ in range(3):
        with pytest.raises(StorageFull):
            await story.checkpoint()
    with pytest.raises(StorageFull):
        await life.publish("orders", b"refused")

    assert len(events(caplog, "disk_full")) == 1
    assert events(caplog, "disk_has_room") == []
    await life.clock.advance(checkpoints.RETRY_SECONDS)
    await story.checkpoint()
    (over,) = events(caplog, "disk_has_room")
    assert over["seconds"] == checkpoints.RETRY_SECONDS


async def test_a_failed_disk_is_told(caplog: pytest.LogCaptureFixture) -> None:
    disk, story = SimulatedFileSystem(), Story()
    life = await story.open(disk)
    await story.create("orders")
    disk.fail("sync", name="journal")
    await life.do(life.publishing("orders", b"perhaps"))

    assert len(events(caplog, "disk_failed")) == 1
    assert [one.levelname for one in caplog.records if event_of(one)[0] == "disk_failed"] == [
        "ERROR"
    ]


async def test_a_slow_disk_is_told_with_its_seconds_and_not_every_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk, story = SimulatedFileSystem(), Story()
    life = await story.open(disk)
    await story.create("orders")
    life.broker.host.slow_disk_seconds = 0.005
    disk.on_sync = lambda name: time.sleep(0.006)
    for _ in range(5):
        await story.publish("orders")

    (line,) = events(caplog, "slow_disk")
    assert line["seconds"] >= 0.006
    assert line["bytes"] > 0


@pytest.mark.parametrize(("on_loop", "who"), [(True, "whole broker"), (False, "publishers")])
def test_a_sync_that_has_not_ended_yet_is_told_with_who_waits(
    caplog: pytest.LogCaptureFixture, on_loop: bool, who: str
) -> None:
    is_stalled(f"data-{on_loop}", 1.5, on_loop)

    (line,) = events(caplog, "sync_stalled")
    assert (line["seconds"], line["on_loop"]) == (1.5, on_loop)
    assert who in caplog.messages[0]


async def test_dead_letters_are_told_by_topic_and_group(caplog: pytest.LogCaptureFixture) -> None:
    async with flintmq.connect("memory://") as mq:
        for topic in ("a", "b"):
            await mq.publish_batch(topic, [b"MARKED"] * 6)
            for message in await mq.poll(topic, "workers", max=3):
                await message.reject("MARKED too")
            await mq.nack(await mq.poll(topic, "workers", max=3))

    found = events(caplog, "dead_letters")
    assert [(one["topic"], one["group"], one["count"]) for one in found] == [
        ("a", "workers", 1),
        ("b", "workers", 1),
    ]
    assert "MARKED" not in caplog.text


async def test_topics_that_are_made_and_deleted_are_told(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    async with flintmq.connect(f"file://{tmp_path}/data") as mq:
        await mq.create_topic("orders", partitions=3)
        await mq.create_topic("orders", partitions=3)
        await mq.delete_topic("orders")

    (made,) = events(caplog, "topic_created")
    assert made == {"topic": "orders", "storage": "durable", "partitions": 3}
    assert events(caplog, "topic_deleted") == [{"topic": "orders"}]
