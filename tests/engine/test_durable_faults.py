"""Disks that fail, fill up and are slow: what the durable broker then says and goes on with."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import Any

import pytest

from flintmq.batch import BatchBuilder
from flintmq.broker_api import ReaderOpening
from flintmq.engine import checkpoints
from flintmq.engine.host import Host, durable_broker
from flintmq.engine.recovery import RecoveryPace
from flintmq.errors import (
    Corrupt,
    OutcomeUnknown,
    QueueFull,
    StorageFailed,
    StorageFull,
    TopicDeleted,
    TopicNotFound,
)
from flintmq.fsync_policy import FsyncPolicy
from flintmq.model import Receipt
from flintmq.storage.manifest import NAME as MANIFEST
from flintmq.storage.manifest import read_manifest
from flintmq.storage.topic_log import TopicLog
from flintmq.testing import SimulatedFileSystem, settle
from tests.engine.stepping import OWN_SEGMENT_BYTES, Life, Story, Stuck, small_sizes
from tests.engine.test_durable_crash import beginning, middle


@pytest.fixture(autouse=True, scope="module")
def sizes() -> Iterator[None]:
    with small_sizes():
        yield


# --- a disk that fails


async def test_a_failed_sync_leaves_waiting_publishes_unknown_and_stops_the_broker() -> None:
    disk, story = SimulatedFileSystem(), Story()
    life = await story.open(disk)
    await story.create("orders")
    await story.publish("orders", 2)
    disk.fail("sync", name="journal")

    first, second = await life.do(
        life.publishing("orders", b"perhaps"), life.publishing("orders", b"perhaps too")
    )
    assert isinstance(first, OutcomeUnknown)
    assert isinstance(second, OutcomeUnknown)
    with pytest.raises(StorageFailed):
        await life.publish("orders", b"never")
    with pytest.raises(StorageFailed):
        await life.run(life.broker.create_topic("another", {}))
    assert [value for _, value in life.messages("orders")] == story.topics["orders"].asked
    await story.close()

    story.topics["orders"].asked += [b"perhaps", b"perhaps too"]
    for keep in ("nothing", "everything", Random(1), Random(2)):
        again = await Life(disk.crash(keep)).open()
        story.check(again)
    disk.heal()
    story.check(await Life(disk).open())


@pytest.mark.slow
@pytest.mark.parametrize("operation", ["sync", "sync_all", "sync_directory", "pwritev", "rename"])
@pytest.mark.parametrize("work", [beginning, middle])
async def test_whatever_the_disk_fails_at_takes_nothing_back(work: object, operation: str) -> None:
    assert callable(work)
    whole = SimulatedFileSystem()
    await work(Story(), whole)
    count = sum(call.operation == operation for call in whole.calls)
    for number in range(1, count + 1):
        disk, story = SimulatedFileSystem(), Story()
        disk.fail(operation, on_call=number)
        try:
            await work(story, disk)
        except (StorageFailed, OutcomeUnknown):
            pass
        else:  # closing keeps what a checkpoint could not write in the journal
            assert work is middle
        disk.heal()
        story.check(await Life(disk.crash(Random(number))).open())
        disk.end_process()
        story.check(await Life(disk).open())


async def test_publishes_gathered_when_the_journal_stops_are_told() -> None:
    disk, story = SimulatedFileSystem(), Story()
    life = await story.open(disk)
    await story.create("orders")
    disk.fail("sync", name="journal")
    first = asyncio.ensure_future(life.publishing("orders", b"a"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    second = asyncio.ensure_future(life.publishing("orders", b"b"))
    await asyncio.sleep(0)  # decided, and to be proposed at the end of this turn
    life.broker.host.step()
    results = await asyncio.gather(first, second, return_exceptions=True)
    assert all(isinstance(result, OutcomeUnknown | StorageFailed) for result in results)


async def test_a_segment_that_cannot_be_read_is_an_error_of_its_readers_alone() -> None:
    disk, story = SimulatedFileSystem(), Story()
    await story.open(disk)
    await story.create("orders")
    await story.create("others")
    await story.publish("orders", 2, size=OWN_SEGMENT_BYTES)
    await story.publish("others", 2)
    await story.close()
    life = Life(disk)
    await life.open()
    topic = life.topic("orders")
    assert topic is not None
    assert isinstance(topic.log, TopicLog)
    disk.flip(topic.log.sections[0].file, 100)

    with pytest.raises(Corrupt):
        life.messages("orders")
    assert len(life.messages("others")) == 2
    await life.publish("orders", b"goes on")
    await life.publish("others", b"goes on")


# --- metadata that is missing or damaged


async def test_a_damaged_manifest_is_refused_and_nothing_is_removed() -> None:
    disk, story = SimulatedFileSystem(), Story()
    await middle(story, disk)
    files = {name: disk.contents(f"segments/{name}") for name in disk.list("segments")}
    disk.flip(MANIFEST, 40)
    with pytest.raises(Corrupt, match="manifest"):
        await Life(disk).open()
    assert {name: disk.contents(f"segments/{name}") for name in disk.list("segments")} == files
    disk.flip(MANIFEST, 40)
    story.check(await Life(disk).open())


async def test_without_its_manifest_a_directory_loses_no_segment() -> None:
    disk, story = SimulatedFileSystem(), Story()
    await middle(story, disk)
    files = disk.list("segments")
    assert files
    disk.remove(MANIFEST)
    with pytest.raises(Corrupt, match="missing"):
        await Life(disk).open()
    assert disk.list("segments") == files
    for name in disk.list("journal"):
        disk.remove(f"journal/{name}")
    with pytest.raises(Corrupt, match="log repair"):
        await Life(disk).open()  # it would pass for an empty one
    assert disk.list("segments") == files


# --- a full disk


@pytest.mark.parametrize("place", ["journal", "segments", "manifest"])
async def test_where_there_is_no_room_producers_hear_it_and_the_rest_goes_on(place: str) -> None:
    disk, story = SimulatedFileSystem(), Story()
    life = await story.open(disk)
    await story.create("orders")
    await story.create("doomed")
    await story.publish("orders", 2)
    await story.publish("doomed", 2)
    await story.checkpoint()
    await story.publish("orders", 3)
    for operation in ("create", "pwritev", "truncate"):
        disk.fail(operation, name=place, error=errno.ENOSPC, times=10**6)

    if place == "journal":
        values = story.values(1)
        story.topics["orders"].asked += values
        with pytest.raises((Stuck, StorageFull)):
            await life.publish("orders", *values)
    else:
        with pytest.raises(StorageFull):
            await story.checkpoint()
        with pytest.raises(StorageFull):
            await life.publish("orders", b"refused")
        with pytest.raises(StorageFull):
            await life.run(life.broker.create_topic("more", {}))
        await story.delete("doomed")
        await story.commit("orders", 2)
    assert [value for _, value in life.messages("orders")][:5] == story.topics["orders"].asked[:5]
    story_check = await Life(disk.crash(Random(3))).open()
    story.check(story_check)

    disk.heal()
    await life.clock.advance(checkpoints.RETRY_SECONDS)
    life.broker.host.step()
    await life.clock.advance(checkpoints.RETRY_SECONDS)
    await story.publish("orders")
    await story.checkpoint()
    story.check(life)
    story.check(await Life(disk.crash("nothing")).open())


@pytest.mark.slow
@pytest.mark.parametrize("work", [beginning, middle])
async def test_a_disk_that_is_full_at_any_point_loses_nothing(work: object) -> None:
    assert callable(work)
    whole = SimulatedFileSystem()
    await work(Story(), whole)
    ended = 0
    for room in range(2_000, 24_000, 500):
        disk, story = SimulatedFileSystem(size_max=room), Story()
        try:
            await work(story, disk)
        except (StorageFull, Stuck, OutcomeUnknown):
            pass
        else:
            ended += 1
        story.life.broker.host.is_closing = True  # whoever was left waiting stays so
        disk.end_process()
        after = disk.crash(Random(room))
        for same in (after, disk):
            same.size_max = None
            life = await Life(same).open()
            story.check(life)
        await story.go_on(life)
        story.check(life)
    assert ended, "where there is enough room the work is done"


async def test_a_checkpoint_that_found_no_room_leaves_no_files_and_uses_no_number_again() -> None:
    disk, story = SimulatedFileSystem(), Story()
    life = await story.open(disk)
    await story.create("orders")
    await story.publish("orders", 2, size=OWN_SEGMENT_BYTES)
    disk.fail("pwritev", name="manifest", error=errno.ENOSPC, times=3)
    for _ in range(3):
        with pytest.raises(StorageFull):
            await story.checkpoint()
        assert life.segments() == []
    await story.checkpoint()

    assert life.segments() == ["segments/0000000000000004.seg"]
    story.check(await Life(disk.crash("nothing")).open())


async def test_deleting_a_topic_on_a_full_disk_makes_room_for_the_others() -> None:
    disk, story = SimulatedFileSystem(), Story()
    life = await story.open(disk)
    await story.create("orders")
    await story.create("large")
    await story.publish("orders")
    for _ in range(4):
        await story.publish("large", 3, size=OWN_SEGMENT_BYTES)
        await story.checkpoint()
    disk.size_max = 1 << 30
    disk.size_max += 3_000 - disk.free_bytes()

    async def fill() -> None:
        while True:
            await story.publish("orders", size=100)

    with pytest.raises(StorageFull):
        await fill()
    with pytest.raises(StorageFull):
        await life.publish("orders", b"refused")
    assert len(life.messages("orders")) >= len(story.topics["orders"].acknowledged)
    await story.delete("large")
    for _ in range(3):
        await life.clock.advance(checkpoints.RETRY_SECONDS)
        life.broker.host.step()
    await story.publish("orders", 3, size=100)
    story.check(life)
    story.check(await Life(disk.crash("nothing")).open())


# --- changes whose callers leave


async def test_changes_that_nobody_waits_for_are_decided_one_after_the_other() -> None:
    disk = SimulatedFileSystem()
    life = await Life(disk).open()
    first = asyncio.ensure_future(life.broker.create_topic("first", {}))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    second = await life.run(life.broker.create_topic("second", {}))
    known = await life.broker.topic_info("first")
    assert known.id != second.id

    deleting = asyncio.ensure_future(life.broker.delete_topic("first"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    deleting.cancel()
    await asyncio.gather(deleting, return_exceptions=True)
    with pytest.raises(TopicNotFound):
        await life.run(life.broker.delete_topic("first"))
    again = await Life(disk.crash("nothing")).open()
    assert await again.broker.topics(">") == ["second"]


async def test_a_publish_that_meets_the_deletion_of_its_topic_harms_nobody() -> None:
    disk, story = SimulatedFileSystem(), Story()
    life = await story.open(disk)
    await story.create("orders")
    await story.publish("orders", 3)
    deleted, published = await life.do(
        life.broker.delete_topic("orders"), life.publishing("orders", b"late")
    )
    assert deleted is None
    assert isinstance(published, Receipt | TopicDeleted | TopicNotFound)
    assert await life.broker.topics(">") == []
    again = await Life(disk.crash("nothing")).open()
    assert await again.broker.topics(">") == []
    await life.run(life.broker.create_topic("orders", {}))
    assert (await life.publish("orders", b"anew")).offset == 0


@pytest.mark.parametrize("is_planned", [True, False])
async def test_a_topic_deleted_while_a_checkpoint_is_written_stays_deleted(
    is_planned: bool,
) -> None:
    disk, story = SimulatedFileSystem(), Story()
    life = await story.open(disk)
    await story.create("orders")
    await story.create("doomed")
    await story.publish_together(("orders", 2), ("doomed", 2))
    plan, pace = life.broker.host.kept[0].checkpoints.begin_plan(), RecoveryPace(False, 0)
    if is_planned:
        await life.broker.host.kept[0].checkpoints.take_states(plan, pace)
    await story.delete("doomed")
    await story.publish("orders")
    if not is_planned:
        await life.broker.host.kept[0].checkpoints.take_states(plan, pace)
    done = life.broker.host.kept[0].checkpoints.write(plan)
    story.check(await Life(disk.crash("nothing")).open())
    await life.broker.host.kept[0].checkpoints.install(plan, done, pace)
    story.check(life)
    await story.checkpoint()
    story.check(await Life(disk.crash("nothing")).open())


async def test_a_topic_that_changes_before_its_turn_in_a_checkpoint_is_taken_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk, story = SimulatedFileSystem(), Story()
    life = await story.open(disk)
    names = ["first", "second", "third", "doomed", "last"]
    for name in names:
        await story.create(name, retention_count=4)
        await story.publish(name, 3)
    changes: list[Callable[[], Awaitable[object]]] = [
        lambda: story.commit("last", 2),
        lambda: story.create("fresh"),
        lambda: story.delete("doomed"),
        lambda: story.publish("first"),
        lambda: story.publish("third", 2),
    ]

    async def step_aside(pace: object) -> None:
        if changes:
            await changes.pop()()

    monkeypatch.setattr(RecoveryPace, "step_aside", step_aside)
    checkpoint = life.broker.shard.proposer.applied
    await story.checkpoint()

    manifest = read_manifest(disk.crash("nothing"))
    assert manifest is not None
    assert manifest.checkpoint == checkpoint
    assert [(topic.name, topic.next_offset) for topic in manifest.topics] == [
        (name, 3) for name in names
    ]
    story.check(life)
    story.check(await Life(disk.crash("nothing")).open())
    await story.checkpoint()
    story.check(await Life(disk.crash("nothing")).open())


@pytest.mark.parametrize("size", [0, 300, 900, 1_500])
async def test_what_is_published_while_a_checkpoint_writes_stays_in_the_journal(size: int) -> None:
    disk, story = SimulatedFileSystem(), Story()
    life = await story.open(disk)
    await story.create("orders")
    await story.create("kept", retention_count=2)
    write = life.broker.host.kept[0].checkpoints.write

    async def aside(work: Callable[..., Any], *args: Any) -> Any:
        if work == write:
            for _ in range(3):
                await story.publish_together(("orders", 1), ("kept", 1), size=size)
        return work(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(life.broker.host.kept[0].checkpoints, "aside", aside)
        for _ in range(4):
            await story.publish_together(("orders", 1), ("kept", 1), size=size)
            await story.checkpoint()
            story.check(life)
            story.check(await Life(disk.crash("nothing")).open())


async def test_a_checkpoint_leaves_what_is_proposed_and_not_applied_to_the_next() -> None:
    disk, story = SimulatedFileSystem(), Story()
    life = await story.open(disk)
    await story.create("orders")
    await story.publish("orders")
    publishing = asyncio.ensure_future(life.publishing("orders", b"on its way"))
    for _ in range(3):
        await asyncio.sleep(0)  # proposed, and not written

    await life.broker.host.checkpoint()
    life.broker.host.step()
    await publishing

    again = await Life(disk.crash("nothing")).open()
    assert again.messages("orders")[-1] == (1, b"on its way")


async def test_what_retention_dropped_leaves_the_disk_with_a_checkpoint() -> None:
    disk, story = SimulatedFileSystem(), Story()
    life = await story.open(disk)
    await story.create("kept", retention_count=2)
    for size in (OWN_SEGMENT_BYTES, 10, 10, 10, OWN_SEGMENT_BYTES, 10, 10, 10, 10):
        await story.publish("kept", 2, size=size)
        await story.checkpoint()
        assert len(life.segments()) <= 2
        story.check(life)
        story.check(await Life(disk.crash("nothing")).open())


# --- what a restart must not forget


async def test_messages_that_expire_and_age_do_so_after_a_restart_too() -> None:
    disk = SimulatedFileSystem()
    life = await Life(disk).open()
    await life.run(life.broker.create_topic("aging", {"retention_age": 5.0}))
    await life.run(life.broker.create_topic("dying", {}))
    await life.publish("aging", b"old")
    await life.publish("dying", b"mortal", expiry=life.clock.now_ms() + 5_000)
    await life.publish("dying", b"immortal")
    await life.run(life.broker.close())

    again = await Life(disk).open()
    reader = await again.run(
        again.broker.open_reader(
            ReaderOpening("dying", name=None, start="earliest", filter=None, auto_create=False)
        )
    )
    await again.clock.advance(6)
    for _ in range(3):
        again.broker.host.step()
        await settle()
    assert again.messages("aging") == []
    assert [message.value for message in reader.take(10)] == [b"immortal"]


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["never", "every_n:3"])
async def test_a_journal_that_a_power_cut_left_behind_the_checkpoint_goes_on(policy: str) -> None:
    fsync = FsyncPolicy.parse(policy)
    for seed in range(8):
        disk, story = SimulatedFileSystem(), Story()
        for number in range(3):
            life = await story.open(disk, fsync)
            if number == 0:
                await story.create("orders")
            for _ in range(seed % 5 + 1):
                await story.publish("orders")
            await story.checkpoint()
            disk = disk.crash(Random(seed))
            story.check(await Life(disk, fsync).open())
            disk.end_process()
        life = await story.open(disk, fsync)
        for _ in range(40):  # so many that the frames get the numbers they had before
            await story.publish("orders")
        await story.close()
        life = await Life(disk.crash("nothing"), fsync).open()
        story.check(life)


# --- a slow disk


async def test_while_a_sync_takes_its_time_consumers_go_on_and_publishers_are_bounded() -> None:
    disk = SimulatedFileSystem()
    broker = durable_broker(disk, journal_file_bytes=64 * 1024)
    await broker.open()
    await broker.create_topic("orders", {})

    async def publish(value: bytes, timeout: float | None = None) -> Receipt:
        rows = BatchBuilder.of([value])
        return await broker.publish("orders", rows, qos=1, auto_create=False, timeout=timeout)

    await publish(b"in memory")
    may_sync, syncing = threading.Event(), threading.Event()

    def slow(name: str) -> None:
        if name.startswith("journal/"):
            syncing.set()
            assert may_sync.wait(60)

    disk.on_sync = slow
    broker.shard.proposer.queue_bytes_max = 1_000
    waiting = [asyncio.ensure_future(publish(b"%03d" % n + bytes(200))) for n in range(30)]
    await asyncio.to_thread(syncing.wait, 20)
    for _ in range(20):
        await asyncio.sleep(0)

    reader = await broker.open_reader(
        ReaderOpening("orders", name=None, start="earliest", filter=None, auto_create=False)
    )
    assert [message.value for message in reader.take(10)] == [b"in memory"]
    assert not any(publishing.done() for publishing in waiting)
    assert broker.shard.proposer.queued_bytes < 1_000 + 30 * 400
    with pytest.raises(QueueFull):
        await publish(b"late", timeout=0)
    waiting.append(asyncio.ensure_future(publish(b"late")))
    for _ in range(20):
        await asyncio.sleep(0)
    held_back = broker.shard.proposer.queued_bytes
    broker.host.set_sizes(checkpoint_bytes=1 << 20, queue_bytes_max=1 << 20)
    for _ in range(20):
        await asyncio.sleep(0)
    assert broker.shard.proposer.queued_bytes > held_back, "a larger queue takes in who waits"
    may_sync.set()
    receipts = await asyncio.gather(*waiting)
    assert [receipt.offset for receipt in receipts] == list(range(1, 32))
    await reader.close()
    await broker.close()
    story = await Life(disk.crash("nothing")).open()
    assert len(story.messages("orders")) == 32


@pytest.mark.slow
async def test_with_less_room_than_a_journal_file_takes_publishers_are_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Host, "first_file_bytes", 64 << 20)
    broker = durable_broker(SimulatedFileSystem(size_max=21 << 20), journal_file_bytes=64 << 20)
    await broker.open()
    try:
        for _ in range(3):
            rows = BatchBuilder()
            rows.append(bytes(1000))
            await broker.publish("orders", rows, qos=1, auto_create=True, timeout=10)
            await broker.host.checkpoint()
    finally:
        await broker.close()


async def test_a_checkpoint_is_due_by_what_is_applied_not_by_what_waits_for_the_journal() -> None:
    life = await Life(SimulatedFileSystem()).open()
    await life.run(life.broker.create_topic("orders", {}))
    kept = life.broker.host.kept[0]
    kept.set_sizes(1000, 1 << 20)
    publishing = asyncio.ensure_future(life.publishing("orders", bytes(1500)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert kept.unflushed() > 1500

    assert not kept.is_checkpoint_due(), "it would have nothing to write, and be due again at once"

    life.broker.host.step()
    await publishing
    await settle()
    assert not kept.has_news(), "it was due then, and is written"
    await life.run(life.broker.close())
