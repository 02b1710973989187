"""Sealed segments in object storage: whatever is killed or fails, each message is there once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from flintmq.engine.host import durable_broker
from flintmq.engine.tiering import RETRY_SECONDS
from flintmq.errors import Corrupt, InvalidRequest, ObjectStorageFailed
from flintmq.storage.inspect import messages, verify
from flintmq.storage.objects import ObjectStores
from flintmq.testing import Crashed, ManualClock, SimulatedFileSystem, SimulatedObjects
from tests.engine.stepping import JOURNAL_FILE_BYTES, Life, small_sizes

TIER = "s3://bucket/tier"
EVERYTHING_LEAVES: dict[str, Any] = {"tier": TIER, "local_retention_bytes": 1}


@pytest.fixture(autouse=True)
def sizes() -> Iterator[None]:
    with small_sizes():
        yield


class TieredLife(Life):
    """A broker with an object store."""

    def __init__(self, disk: SimulatedFileSystem, objects: SimulatedObjects) -> None:
        self.disk, self.objects, self.clock = disk, objects, ManualClock()
        self.broker = durable_broker(
            disk, clock=self.clock, objects=objects, journal_file_bytes=JOURNAL_FILE_BYTES
        )

    async def create(self, name: str, **options: Any) -> None:
        await self.run(self.broker.create_topic(name, options))

    async def tier(self) -> None:
        """A checkpoint, what is uploaded after it, and the one that lets files go."""
        kept = self.broker.host.kept[0]
        await self.run(kept.checkpoints.checkpoint())
        await self.run(kept.tiering.settled())
        await self.run(kept.checkpoints.checkpoint())
        await self.run(kept.tiering.settled())

    def log(self, name: str) -> Any:
        topic = self.topic(name)
        assert topic is not None
        return topic.log

    def far(self, name: str) -> list[tuple[int, int]]:
        return [(one.section.base, one.section.next) for one in self.log(name).far.all]

    def urls(self) -> set[str]:
        """What topics and the list of loose objects name."""
        state = self.broker.shard.state
        logs: list[Any] = [topic.log for topic in state.by_id.values()]
        named = {one.section.file for log in logs for one in log.far.all}
        return named | set(state.loose)


async def opened(
    disk: SimulatedFileSystem | None = None, objects: SimulatedObjects | None = None
) -> TieredLife:
    life = TieredLife(disk or SimulatedFileSystem(), objects or SimulatedObjects())
    await life.open()
    return life


def numbered(start: int, stop: int) -> list[bytes]:
    return [b"message %d" % number for number in range(start, stop)]


def all_of(start: int, stop: int) -> list[tuple[int, bytes]]:
    return list(enumerate(numbered(start, stop), start))


async def test_segments_are_uploaded_and_leave_the_disk_and_are_read_from_there() -> None:
    life = await opened()
    await life.create("orders", **EVERYTHING_LEAVES)
    await life.publish("orders", *numbered(0, 5))
    await life.tier()
    await life.publish("orders", *numbered(5, 8))
    await life.tier()
    await life.publish("orders", *numbered(8, 10))

    assert life.far("orders") == [(0, 5), (5, 8)]
    assert life.log("orders").sections == []
    assert life.segments() == []
    assert set(life.objects.stored) == life.urls()
    assert life.messages("orders") == all_of(0, 10)


async def test_without_a_local_limit_the_disk_keeps_its_copy() -> None:
    life = await opened()
    await life.create("orders", tier=TIER)
    life.broker.host.kept[0].tiering.object_bytes = 1
    await life.publish("orders", *numbered(0, 5))
    await life.tier()
    life.objects.calls.clear()

    assert life.far("orders") == [(0, 5)]
    assert len(life.segments()) == 1
    assert life.messages("orders") == all_of(0, 5)
    assert life.objects.calls == []


async def test_small_sections_wait_until_there_is_enough_for_an_object_or_they_are_old() -> None:
    life = await opened()
    await life.create("orders", tier=TIER, local_retention_age=60)
    for number in range(3):
        await life.publish("orders", *numbered(2 * number, 2 * number + 2))
        await life.tier()
    assert life.objects.stored == {}

    await life.clock.advance(120)
    await life.tier()

    assert life.far("orders") == [(0, 6)], "one object of all of them"
    assert life.segments() == []


async def test_an_upload_that_is_refused_is_repeated_and_nothing_leaves_before_it() -> None:
    life = await opened()
    await life.create("orders", **EVERYTHING_LEAVES)
    await life.publish("orders", *numbered(0, 5))
    life.objects.fail("write")
    await life.tier()
    assert life.far("orders") == []
    assert len(life.segments()) == 1
    assert life.broker.host.kept[0].tiering.failures == 1

    await life.clock.advance(RETRY_SECONDS + 1)
    await life.run(life.broker.host.kept[0].tiering.settled())
    await life.tier()

    assert life.far("orders") == [(0, 5)]
    assert set(life.objects.stored) == life.urls()
    assert life.messages("orders") == all_of(0, 5)


async def test_an_object_that_is_not_what_was_written_is_never_relied_on() -> None:
    life = await opened()
    await life.create("orders", **EVERYTHING_LEAVES)
    await life.publish("orders", *numbered(0, 5))
    life.objects.damages_uploads = True
    await life.tier()

    assert life.far("orders") == []
    assert life.messages("orders") == all_of(0, 5)
    life.objects.damages_uploads = False
    await life.clock.advance(RETRY_SECONDS + 1)
    await life.run(life.broker.host.kept[0].tiering.settled())
    assert life.far("orders") == [(0, 5)]
    assert set(life.objects.stored) == life.urls(), "the damaged one was removed"


async def test_no_checkpoint_removes_the_files_of_an_upload_meanwhile() -> None:
    held: list[list[str]] = []

    class Watched(SimulatedObjects):
        def create(self, name: str) -> Any:
            copied = life.broker.host.kept[0].checkpoints.copied
            held.append(sorted(file for files in copied for file in files))
            return super().create(name)

    life = await opened(objects=Watched())
    await life.create("orders", **EVERYTHING_LEAVES)
    await life.publish("orders", *numbered(0, 5))
    await life.tier()

    assert held == [["segments/0000000000000001.seg"]]
    assert life.broker.host.kept[0].checkpoints.copied == []


async def test_a_store_that_cannot_be_reached_loses_nothing_and_passes_over_nothing() -> None:
    life = await opened()
    await life.create("orders", **EVERYTHING_LEAVES)
    await life.publish("orders", *numbered(0, 5))
    await life.tier()
    life.objects.fail("read", times=1)

    with pytest.raises(ObjectStorageFailed, match="cannot read the object s3://bucket/tier"):
        life.messages("orders")
    assert life.log("orders").damaged == []
    assert life.messages("orders") == all_of(0, 5)


async def test_a_damaged_object_is_damage_of_its_messages() -> None:
    life = await opened()
    await life.create("orders", **EVERYTHING_LEAVES)
    await life.publish("orders", *numbered(0, 5))
    await life.tier()
    ((url, content),) = life.objects.stored.items()
    at = content.index(b"message 3")
    life.objects.stored[url] = content[:at] + b"M" + content[at + 1 :]

    with pytest.raises(Corrupt, match="offsets 0 to 4 of topic 'orders' are damaged"):
        life.messages("orders")


async def test_objects_that_retention_has_passed_are_removed() -> None:
    life = await opened()
    await life.create("orders", **EVERYTHING_LEAVES)
    for number in range(3):
        await life.publish("orders", *numbered(2 * number, 2 * number + 2))
        await life.tier()
    assert len(life.objects.stored) == 3

    await life.run(life.broker.purge_topic("orders", 4))
    await life.tier()

    assert life.far("orders") == [(4, 6)]
    assert set(life.objects.stored) == life.urls()
    assert life.messages("orders") == all_of(0, 6)[4:]


async def test_the_objects_of_a_deleted_topic_are_removed_also_after_a_restart() -> None:
    life = await opened()
    await life.create("orders", **EVERYTHING_LEAVES)
    await life.publish("orders", *numbered(0, 5))
    await life.tier()
    life.objects.fail("remove", times=1)
    await life.run(life.broker.delete_topic("orders"))
    await life.tier()
    assert len(life.objects.stored) == 1
    await life.run(life.broker.close())

    again = await opened(life.disk, life.objects)
    await again.run(again.broker.host.kept[0].tiering.settled())
    await again.tier()
    assert life.objects.stored == {}
    assert again.urls() == set()


async def test_a_delayed_message_stays_on_the_disk_until_it_is_due() -> None:
    life = await opened()
    await life.create("orders", **EVERYTHING_LEAVES)
    due_ms = life.clock.now_ms() + 60_000
    await life.publish("orders", b"later", deliver_at=due_ms)
    await life.tier()
    assert life.far("orders") == [(0, 1)]
    assert len(life.segments()) == 1

    await life.clock.advance(61)
    await life.tier()
    assert life.segments() == []
    assert life.messages("orders") == [(0, b"later")]


async def test_a_time_is_found_in_an_object() -> None:
    life = await opened()
    await life.create("orders", **EVERYTHING_LEAVES)
    times = []
    for number in range(3):
        times.append(life.clock.now_ms())
        await life.publish("orders", *numbered(2 * number, 2 * number + 2))
        await life.tier()
        await life.clock.advance(60)

    found = await life.run(
        life.broker.extents("orders", datetime.fromtimestamp(times[1] / 1000, UTC))
    )
    assert [one.at for one in found] == [2]


async def test_a_copy_reads_the_objects_and_removes_none_of_them() -> None:
    life = await opened()
    await life.create("orders", **EVERYTHING_LEAVES)
    await life.publish("orders", *numbered(0, 5))
    await life.tier()
    copied = SimulatedFileSystem()
    await life.run(life.broker.host.back_up_to(copied))

    copy = await opened(copied, life.objects)
    assert copy.messages("orders") == all_of(0, 5)
    await copy.run(copy.broker.delete_topic("orders"))
    await copy.tier()
    assert copy.urls() == set()
    assert life.messages("orders") == all_of(0, 5)


async def test_log_verify_and_dump_cover_both_places() -> None:
    life = await opened()
    await life.create("orders", **EVERYTHING_LEAVES)
    await life.publish("orders", *numbered(0, 5))
    await life.tier()
    await life.publish("orders", *numbered(5, 7))
    await life.run(life.broker.close())
    disk, objects = life.disk, life.objects
    disk.end_process()

    def dumped() -> list[bytes]:
        found = messages(disk, "orders", objects=objects)
        return [bytes(batch.value(row)) for batch, a, b in found for row in range(a, b)]

    assert verify(disk, objects=objects) == []
    assert dumped() == numbered(0, 7)

    ((url, content),) = objects.stored.items()
    objects.stored[url] = content.replace(b"message 3", b"MESSAGE 3")
    (problem,) = verify(disk, objects=objects)
    assert problem.file == url
    assert problem.is_damage
    del objects.stored[url]
    (problem,) = verify(disk, objects=objects)
    assert "404 Not Found" in problem.what


async def test_a_tier_is_for_durable_topics_that_are_not_compacted() -> None:
    life = await opened()
    for options, text in (
        ({"storage": "memory"}, "storage='durable'"),
        ({"compact": "key"}, "exclude each other"),
        ({"tier": "bucket/prefix"}, "must be a URL such as 's3://bucket/prefix'"),
    ):
        with pytest.raises(InvalidRequest, match=text):
            await life.run(life.broker.create_topic("bad", {"tier": TIER, **options}))


async def test_a_broker_says_which_places_it_allows() -> None:
    life = await opened()
    life.broker = durable_broker(
        SimulatedFileSystem(), clock=ManualClock(), objects=ObjectStores(("file:///mnt/",))
    )
    await life.broker.open(threaded=False)
    with pytest.raises(InvalidRequest, match=r"its setting `tiers` allows file:///mnt/"):
        await life.create("orders", tier="file:///etc")
    await life.create("orders", tier="file:///mnt/far")
    with pytest.raises(InvalidRequest, match=r"its setting `tiers`"):
        await life.run(life.broker.configure_topic("orders", {"tier": "s3://other"}))


# --- killed at every step


async def story(life: TieredLife, acknowledged: dict[int, bytes]) -> None:
    """Uploads, files that leave, retention, a topic that is deleted."""

    async def publish(start: int, stop: int) -> None:
        receipt = await life.publish("orders", *numbered(start, stop))
        assert receipt.offset == start
        acknowledged.update(all_of(start, stop))

    await life.create("orders", **EVERYTHING_LEAVES)
    await life.create("gone", **EVERYTHING_LEAVES)
    await publish(0, 3)
    await life.publish("gone", b"x", b"y")
    await life.tier()
    await publish(3, 7)
    await life.run(life.broker.delete_topic("gone"))
    await life.tier()
    await publish(7, 8)
    await life.run(life.broker.purge_topic("orders", 3))
    await life.tier()
    await publish(8, 9)


async def survivor(disk: SimulatedFileSystem, objects: SimulatedObjects) -> TieredLife:
    life = await opened(disk, objects)
    await life.run(life.broker.host.kept[0].tiering.settled())
    return life


async def check(life: TieredLife, acknowledged: dict[int, bytes]) -> None:
    """What was acknowledged is there; and once it is quiet, nobody's objects are gone."""
    for _ in range(2):
        if life.topic("orders") is not None:
            found = dict(life.messages("orders"))
            first = life.log("orders").first_offset
            assert {k: v for k, v in acknowledged.items() if k >= first} == {
                k: v for k, v in found.items() if k in acknowledged
            }
            assert first in (0, 3)
        await life.tier()
    assert set(life.objects.stored) == life.urls()
    assert not life.broker.shard.state.loose
    assert verify(life.disk, objects=life.objects) == [] or life.segments()


async def count_steps() -> tuple[int, int]:
    disk, objects = SimulatedFileSystem(), SimulatedObjects()
    life = await opened(disk, objects)
    before = len(disk.calls)
    await story(life, {})
    return len(disk.calls) - before, len(objects.calls)


@pytest.mark.parametrize("keep", ["nothing", "everything"])
@pytest.mark.slow
async def test_killed_at_every_step_of_disk_and_store_nothing_is_lost_and_nothing_is_left(
    keep: Any,
) -> None:
    of_disk, of_store = await count_steps()
    assert of_store > 20
    for on_disk, steps in ((True, of_disk), (False, of_store)):
        for step in range(0, steps, 3 if on_disk else 1):
            disk, objects = SimulatedFileSystem(), SimulatedObjects()
            life = await opened(disk, objects)
            acknowledged: dict[int, bytes] = {}
            (disk if on_disk else objects).stop_after(step)
            with suppress(Crashed, Exception):
                await story(life, acknowledged)
            objects.stop_after(None)
            await check(await survivor(disk.crash(keep), objects), acknowledged)
