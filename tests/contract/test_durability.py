"""file://: what was acknowledged is there after a restart, be it a clean one or none at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import flintmq
from flintmq.model import Storage
from flintmq.storage.filesystem import LocalFile
from flintmq.testing import ManualClock
from tests.conftest import Background
from tests.power_cut import copy_as_cut

from .conftest import connect_at
from .over_cluster import NOT_OF_CLUSTERS

SCHEMA = '{"type":"record","name":"Order","fields":[{"name":"n","type":"long"}]}'


class Restarts:
    """One broker after the other over the same data.

    `closed`: the one before is closed. `killed`: it is left as it is, and the next one gets its
    files as they are at that moment, as after the process was killed.
    """

    def __init__(self, directory: Path, clock: ManualClock, ending: str, way: str = "file") -> None:
        self._directory, self._clock, self.ending = directory, clock, ending
        self._way = way
        self._opened: list[flintmq.Client] = []

    @property
    def url(self) -> str:
        if self._way == "cluster":
            return str(self._directory)
        return f"file://{self._directory}"

    async def start(self, **options: Any) -> flintmq.Client:
        client = connect_at(self.url, self._clock, self._way, **options)
        self._opened.append(client)
        await client
        return client

    async def restart(self, **options: Any) -> flintmq.Client:
        await self._clock.settle()
        if self.ending == "closed":
            await self._opened[-1].close()
        else:
            copy = self._directory.with_name(f"copy-{len(self._opened)}")
            copy_as_cut(self._directory, copy)
            self._directory = copy
        return await self.start(**options)

    async def close(self) -> None:
        for client in self._opened:
            await client.close()


@pytest.fixture(
    params=[
        "file",
        pytest.param("file-blocking", marks=pytest.mark.slow),
        pytest.param("cluster", marks=pytest.mark.slow),
    ]
)
def way(request: pytest.FixtureRequest) -> str:
    if request.param == "cluster" and (reason := NOT_OF_CLUSTERS.get(request.node.originalname)):
        pytest.skip(reason)
    return str(request.param)


@pytest.fixture(params=["closed", "killed"])
def ending(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def restarts(
    url: str, clock: ManualClock, ending: str, tmp_path: Path, way: str
) -> AsyncIterator[Restarts]:
    restarts = Restarts(tmp_path / "data", clock, ending, way)
    yield restarts
    await restarts.close()


async def _values(mq: flintmq.Client, topic: str = "orders", **options: Any) -> list[Any]:
    async with mq.reader(topic, **options) as reader:
        return list(reader.read_batch_nowait(100_000).values)


# --- messages


async def test_messages_are_there_again_with_everything_they_had(restarts: Restarts) -> None:
    mq = await restarts.start()
    await mq.publish("orders", b"plain")
    await mq.publish(
        "orders", "text", key="k", headers={"h": "1"}, priority=3, ttl=90, delay=4,
        content_type="text/plain",
    )  # fmt: skip
    await mq.publish_batch("orders", [b"a" * 1000, b""], batch_compression="zstd")
    async with mq.reader("orders") as reader:
        before = list(await reader.read_batch(10))

    mq = await restarts.restart()

    async with mq.reader("orders") as reader:
        after = list(await reader.read_batch(10))
    assert len(after) == 4
    for ours, theirs in zip(before, after, strict=True):
        for field in (
            "offset", "value", "key", "headers", "priority", "expires_at", "deliver_at",
            "content_type", "timestamp", "topic",
        ):  # fmt: skip
            assert getattr(ours, field) == getattr(theirs, field), field


async def test_live_feeds_get_what_was_delayed_before_the_restart(
    restarts: Restarts, clock: ManualClock
) -> None:
    mq = await restarts.start()
    await mq.publish("orders", b"late", delay=50)
    await mq.publish("orders", b"early", delay=5)

    mq = await restarts.restart()

    async with mq.live("orders") as feed:
        await clock.advance(6)
        assert (await feed.read_batch(10, timeout=0)).values == [b"early"]
        await clock.advance(50)
        assert (await feed.read_batch(10, timeout=0)).values == [b"late"]


async def test_offsets_go_on_over_many_restarts(restarts: Restarts, clock: ManualClock) -> None:
    mq = await restarts.start()
    for n in range(6):
        assert (await mq.publish("orders", b"%d" % n)).offset == n
        await clock.advance(1)
        restarts.ending = "killed" if n % 2 else "closed"
        mq = await restarts.restart()
        assert await _values(mq) == [b"%d" % m for m in range(n + 1)]
    stats = await mq.topic_stats("orders")
    assert (stats.first_offset, stats.next_offset, stats.message_count) == (0, 6, 6)
    assert stats.byte_count == 6


@pytest.mark.slow
async def test_a_publisher_and_many_topics_come_back(restarts: Restarts) -> None:
    mq = await restarts.start()
    async with mq.publisher("many") as publisher:
        for n in range(3000):
            publisher.send(b"%d" % n)
    await mq.publish_many([(f"topic-{n % 50}", b"%d" % n) for n in range(200)])

    mq = await restarts.restart()

    assert await _values(mq, "many") == [b"%d" % n for n in range(3000)]
    for n in range(50):
        assert await _values(mq, f"topic-{n}") == [b"%d" % m for m in range(n, 200, 50)]


async def test_batches_of_a_publisher_share_the_wait_for_the_disk(
    restarts: Restarts, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "file-blocking":
        pytest.skip("how many batches a turn of the connection's loop finds is a matter of luck")
    mq = await restarts.start()
    await mq.create_topic("orders")
    syncs: list[str] = []
    sync = LocalFile.sync

    def counted(file: LocalFile) -> None:
        syncs.append(file.name)
        sync(file)

    monkeypatch.setattr(LocalFile, "sync", counted)
    async with mq.publisher("orders") as publisher:
        for n in range(30_000):
            publisher.send(b"%d" % n)
        await publisher.flush()
    in_use = [name for name in syncs if "spare" not in name]
    assert len(in_use) < 15  # for 30 batches

    mq = await restarts.restart()
    assert await _values(mq) == [b"%d" % n for n in range(30_000)]


async def test_the_figures_begin_anew(restarts: Restarts) -> None:
    mq = await restarts.start()
    await mq.create_topic("orders", retention_count=2)
    for _ in range(5):
        await mq.publish("orders", b"x")
    assert (await mq.topic_stats("orders")).drops == {"count": 3}

    mq = await restarts.restart()

    stats = await mq.topic_stats("orders")
    assert (stats.published, stats.delivered, stats.drops) == (0, 0, {})
    assert stats.message_count == 2


async def test_a_message_of_a_mebibyte_comes_back(restarts: Restarts) -> None:
    mq = await restarts.start()
    value = bytes(range(256)) * 4096
    await mq.publish("orders", value)
    mq = await restarts.restart()
    assert await _values(mq) == [value]


@pytest.mark.parametrize(
    ("fsync", "durability"),
    [("always", "synced"), ("never", "written"), ("every_n:10", "written"),
     ("interval:50", "written")],
)  # fmt: skip
async def test_receipts_say_how_safe_a_message_is(
    restarts: Restarts, fsync: str, durability: str, way: str
) -> None:
    if way == "cluster":
        durability = "replicated" if durability == "synced" else "replicated-written"
    mq = await restarts.start(fsync=fsync)
    assert (await mq.publish("orders", b"1")).durability == durability
    assert (await mq.publish_batch("orders", [b"2"] * 2000)).durability == durability
    identified: dict[str, Any] = {"producer": "p", "sequence": 1}
    for duplicate in (False, True):
        receipt = await mq.publish("orders", b"3", **identified)
        assert (receipt.durability, receipt.duplicate) == (durability, duplicate)
    assert (await mq.publish("orders", b"4", qos=0)).durability == "none"
    async with mq.publisher("orders") as publisher:
        publisher.send(b"5")
        await publisher.flush()
        assert publisher.last_receipt is not None
        assert publisher.last_receipt.durability == durability
    await mq.create_topic("memory", storage="memory")
    assert (await mq.publish("memory", b"6")).durability == "memory"

    mq = await restarts.restart(fsync=fsync)
    assert len(await _values(mq)) == 2003


async def test_what_was_published_with_an_identity_is_known_after_a_restart(
    restarts: Restarts,
) -> None:
    mq = await restarts.start()
    await mq.publish("orders", b"1", producer="p", sequence=2**64 - 1)
    await mq.publish_batch("orders", [b"2", b"3"], producer="p", sequence=5)

    mq = await restarts.restart()

    again = await mq.publish("orders", b"1", producer="p", sequence=2**64 - 1)
    assert (again.offset, again.duplicate) == (0, True)
    batch = await mq.publish_batch("orders", [b"2", b"3"], producer="p", sequence=5)
    assert (batch.offset, batch.duplicate) == (1, True)
    with pytest.raises(flintmq.InvalidRequest, match="overlap"):
        await mq.publish_batch("orders", [b"3", b"4"], producer="p", sequence=6)
    assert not (await mq.publish("orders", b"4", producer="p", sequence=7)).duplicate
    assert await _values(mq) == [b"1", b"2", b"3", b"4"]


# --- topics


async def test_topics_and_their_options_come_back(restarts: Restarts) -> None:
    mq = await restarts.start()
    made = [
        await mq.create_topic("plain"),
        await mq.create_topic(
            "all", retention_count=9, retention_bytes=5000, retention_age=60, ttl=30,
            max_message_bytes=100, overflow="reject", compression="gzip",
        ),
        await mq.create_topic("row", partitions=3),
        await mq.create_topic("avro", format="avro", schema=SCHEMA),
        await mq.create_topic("memory", storage="memory"),
    ]  # fmt: skip
    await mq.publish("auto", b"x")
    made.append(await mq.configure_topic("auto", retention_count=2))

    mq = await restarts.restart()

    assert [await mq.topic_info(info.name) for info in made] == made
    assert await mq.topics() == ["all", "auto", "avro", "memory", "plain", "row"]


async def test_values_are_decoded_as_they_were(restarts: Restarts) -> None:
    mq = await restarts.start()
    await mq.create_topic("avro", format="avro", schema=SCHEMA)
    await mq.create_topic("packed", format="msgpack", compression="zstd")
    await mq.publish("avro", {"n": 1})
    await mq.publish("packed", {"n": [1, 2]})

    mq = await restarts.restart()

    await mq.publish("avro", {"n": 2})
    async with mq.reader("avro") as reader:
        assert (await reader.read_batch(10)).decode() == [{"n": 1}, {"n": 2}]
    async with mq.reader("packed") as reader:
        assert (await reader.read_batch(10)).decode() == [{"n": [1, 2]}]


async def test_a_deleted_topic_stays_deleted_and_its_id_is_never_used_again(
    restarts: Restarts,
) -> None:
    mq = await restarts.start()
    await mq.create_topic("stays")
    gone = await mq.create_topic("gone")
    await mq.publish("gone", b"x")
    await mq.delete_topic("gone")

    mq = await restarts.restart()
    assert await mq.topics() == ["stays"]
    mq = await restarts.restart()
    anew = await mq.create_topic("gone")

    assert anew.id > gone.id
    assert await _values(mq, "gone") == []
    assert (await mq.publish("gone", b"y")).offset == 0
    mq = await restarts.restart()
    assert await _values(mq, "gone") == [b"y"]


async def test_partitions_come_back_each_with_its_own(restarts: Restarts) -> None:
    mq = await restarts.start()
    await mq.create_topic("orders", partitions=3)
    for n in range(30):
        await mq.publish("orders", b"%d" % n, key=f"k{n % 7}")
    before = [await _values(mq, f"orders/{n}") for n in range(3)]

    mq = await restarts.restart()

    assert [await _values(mq, f"orders/{n}") for n in range(3)] == before
    receipt = await mq.publish("orders", b"30", key="k2")
    assert receipt.offset == len(before[receipt.partition])
    assert b"2" in before[receipt.partition]  # the same key, the same partition


async def test_partitions_that_were_added_are_read_from_the_start_by_known_names(
    restarts: Restarts,
) -> None:
    mq = await restarts.start()
    await mq.create_topic("orders", partitions=1)
    await mq.publish("orders", b"0")
    async with mq.reader("orders", name="n") as reader:
        assert (await reader.read_batch(10)).values
        await reader.commit()
    await mq.configure_topic("orders", partitions=2)
    await mq.publish("orders", b"1", partition=1)

    mq = await restarts.restart()

    assert (await mq.topic_info("orders")).options.partitions == 2
    assert await _values(mq, name="n", start="committed") == [b"1"]


async def test_the_storage_of_a_topic_cannot_be_changed(restarts: Restarts) -> None:
    mq = await restarts.start()
    await mq.create_topic("orders")
    await mq.create_topic("memory", storage="memory")
    other: list[tuple[str, Storage]] = [("orders", "memory"), ("memory", "durable")]
    for name, storage in other:
        with pytest.raises(flintmq.InvalidRequest, match="stays so"):
            await mq.configure_topic(name, storage=storage)
    await mq.configure_topic("orders", storage="durable", retention_count=5)


# --- retention


async def test_what_retention_dropped_does_not_come_back(restarts: Restarts) -> None:
    mq = await restarts.start()
    await mq.create_topic("orders", retention_count=3)
    await mq.create_topic("bytes", retention_bytes=25)
    for n in range(10):
        await mq.publish("orders", b"%d" % n)
        await mq.publish("bytes", b"%010d" % n)

    mq = await restarts.restart()

    assert await _values(mq) == [b"7", b"8", b"9"]
    assert await _values(mq, "bytes") == [b"%010d" % 8, b"%010d" % 9]
    stats = await mq.topic_stats("orders")
    assert (stats.first_offset, stats.next_offset) == (7, 10)
    assert (await mq.topic_stats("bytes")).byte_count == 20
    await mq.publish("orders", b"10")
    assert await _values(mq) == [b"8", b"9", b"10"]


async def test_an_emptied_topic_goes_on_with_its_offsets(
    restarts: Restarts, clock: ManualClock
) -> None:
    mq = await restarts.start()
    await mq.create_topic("orders", retention_age=10)
    await mq.publish_batch("orders", [b"x"] * 5)
    await clock.advance(11)
    assert await _values(mq) == []

    mq = await restarts.restart()

    stats = await mq.topic_stats("orders")
    assert (stats.first_offset, stats.next_offset, stats.byte_count) == (5, 5, 0)
    assert (await mq.publish("orders", b"y")).offset == 5


@pytest.mark.parametrize("limit", [{"retention_age": 10}, {"ttl": 10}, {}])
async def test_what_came_of_age_while_nobody_was_there_goes(
    restarts: Restarts, clock: ManualClock, limit: dict[str, Any]
) -> None:
    mq = await restarts.start()
    await mq.create_topic("orders", **limit)
    message: dict[str, Any] = {} if limit else {"ttl": 10}
    await mq.publish("orders", b"old", **message)
    await clock.advance(6)
    await mq.publish("orders", b"young", **message)
    if restarts.ending == "closed":
        await mq.close()
        await clock.advance(5)
    mq = await restarts.restart()
    if restarts.ending == "killed":
        await clock.advance(5)
    await clock.advance(0.1)

    assert await _values(mq) == [b"young"]
    assert (await mq.topic_stats("orders")).first_offset == 1
    await clock.advance(6)
    assert await _values(mq) == []
    assert (await mq.topic_stats("orders")).first_offset == 2


async def test_room_that_readers_made_is_still_there(restarts: Restarts) -> None:
    mq = await restarts.start()
    await mq.create_topic("orders", retention_count=3, overflow="reject")
    reader = await mq.reader("orders", name="n")
    for n in range(5):
        await mq.publish("orders", b"%d" % n)
        await reader.read()
        await reader.commit()
    before = await mq.topic_stats("orders")

    mq = await restarts.restart()

    stats = await mq.topic_stats("orders")
    assert (stats.first_offset, stats.next_offset) == (before.first_offset, 5)
    for n in range(5, 8):
        await mq.publish("orders", b"%d" % n)
    with pytest.raises(flintmq.TopicFull):
        await mq.publish("orders", b"8")


# --- names


async def test_names_go_on_where_they_committed(restarts: Restarts) -> None:
    mq = await restarts.start()
    await mq.publish_batch("orders", [b"%d" % n for n in range(6)])
    async with mq.reader("orders", name="n") as reader:
        await reader.read_batch(4)
        await reader.commit(2)
        await reader.read()

        mq = await restarts.restart()

    assert await _values(mq, name="n") == [b"%d" % n for n in range(2, 6)]
    assert (await mq.topic_stats("orders")).lag["n"] == 4


async def test_a_name_that_has_only_begun_has_begun_there(restarts: Restarts) -> None:
    mq = await restarts.start()
    await mq.publish("orders", b"before")
    await mq.reader("orders", name="late", start="latest")
    await mq.publish("orders", b"after")

    mq = await restarts.restart()

    assert (await mq.topic_stats("orders")).lag == {"late": 1}
    assert await _values(mq, name="late") == [b"after"]


async def test_a_name_holds_a_full_topic_back_after_a_restart_too(restarts: Restarts) -> None:
    mq = await restarts.start()
    await mq.create_topic("orders", retention_count=2, overflow="reject")
    await mq.reader("orders", name="slow")
    await mq.publish_batch("orders", [b"0", b"1"])

    mq = await restarts.restart()

    with pytest.raises(flintmq.TopicFull, match="'slow' still has 2"):
        await mq.publish("orders", b"2")


async def test_names_that_begin_at_the_same_time_share_the_topic(
    restarts: Restarts, background: Background
) -> None:
    mq = await restarts.start()
    await mq.publish_batch("orders", [b"%d" % n for n in range(10)])
    opening = [background.start(_opened(mq, f"n{n % 2}")) for n in range(8)]
    readers = [await task for task in opening]
    got: list[bytes] = []
    for reader in readers:
        message = await reader.read()
        assert message is not None
        got.append(message.value)
    for name in range(2):
        assert sorted(got[name::2]) == [b"0", b"1", b"2", b"3"]

    mq = await restarts.restart()
    assert (await mq.topic_stats("orders")).lag == {"n0": 10, "n1": 10}


async def _opened(mq: flintmq.Client, name: str) -> flintmq.Reader:
    return await mq.reader("orders", name=name)


# --- topics in memory


async def test_a_topic_in_memory_is_there_and_empty(restarts: Restarts) -> None:
    mq = await restarts.start()
    await mq.create_topic("memory", storage="memory")
    assert (await mq.topic_info("memory")).options.retention_bytes is not None
    async with mq.reader("memory", name="n") as reader:
        await mq.publish_batch("memory", [b"1", b"2"])
        assert list((await reader.read_batch(10)).values) == [b"1", b"2"]
        await reader.commit()

    mq = await restarts.restart()

    assert await _values(mq, "memory") == []
    stats = await mq.topic_stats("memory")
    assert (stats.first_offset, stats.next_offset) == (0, 0)
    assert (await mq.publish("memory", b"3")).offset == 0
    assert await _values(mq, "memory", name="n") == [b"3"]


async def test_objects_are_passed_in_memory(restarts: Restarts) -> None:
    mq = await restarts.start()
    info = await mq.create_topic("objects", format="object")
    assert info.options.storage == "memory"
    thing = object()
    await mq.publish("objects", thing)
    assert (await _values(mq, "objects"))[0] is thing
    with pytest.raises(flintmq.InvalidRequest, match="storage='memory'"):
        await mq.create_topic("durable", format="object", storage="durable")

    mq = await restarts.restart()
    assert await mq.topic_info("objects") == info


# --- several at once


async def test_a_topic_that_many_publish_to_first_is_made_once(
    restarts: Restarts, background: Background
) -> None:
    mq = await restarts.start()
    publishing = [background.start(mq.publish("orders", b"%d" % n)) for n in range(20)]
    making = [background.start(mq.create_topic("orders")) for _ in range(3)]
    receipts = [await task for task in publishing]
    infos = {(await task).id for task in making}

    assert sorted(receipt.offset or 0 for receipt in receipts) == list(range(20))
    assert infos == {(await mq.topic_info("orders")).id}
    before = await _values(mq)
    mq = await restarts.restart()
    assert await _values(mq) == before
    assert len(before) == 20


async def test_publishes_beside_a_delete_are_in_the_old_topic_or_in_the_new_one(
    restarts: Restarts, background: Background
) -> None:
    mq = await restarts.start()
    first = await mq.create_topic("orders")
    tasks: list[asyncio.Task[flintmq.Receipt]] = []
    for n in range(10):
        tasks.append(background.start(mq.publish("orders", b"a%d" % n)))
    deleting = background.start(mq.delete_topic("orders"))
    for n in range(10):
        tasks.append(background.start(mq.publish("orders", b"b%d" % n)))
    await deleting
    receipts = [await task for task in tasks]
    assert all(receipt.offset is not None for receipt in receipts)
    late = await mq.publish("orders", b"late")
    left = await _values(mq)

    mq = await restarts.restart()

    assert (await mq.topic_info("orders")).id > first.id
    assert await _values(mq) == left
    assert left[late.offset or 0] == b"late"
    assert len(left) == (late.offset or 0) + 1


async def test_a_cancelled_change_leaves_the_next_one_a_clear_view(
    restarts: Restarts, background: Background
) -> None:
    mq = await restarts.start()
    for turns in range(6):
        making = background.start(mq.create_topic(f"t{turns}"))
        for _ in range(turns):
            await asyncio.sleep(0)
        making.cancel()
        other = await mq.create_topic(f"other{turns}")
        again = await mq.create_topic(f"t{turns}")
        assert other.id != again.id
        await mq.publish(f"t{turns}", b"x")

    mq = await restarts.restart()

    names = await mq.topics()
    ids = [(await mq.topic_info(name)).id for name in names]
    assert len(names) == len(set(ids)) == 12
    for turns in range(6):
        assert await _values(mq, f"t{turns}") == [b"x"]


# --- the directory


async def test_a_directory_belongs_to_one_at_a_time(restarts: Restarts) -> None:
    mq = await restarts.start()
    with pytest.raises(flintmq.DataDirectoryInUse, match="in use by process"):
        await restarts.start()
    await mq.publish("orders", b"x")
    await mq.close()
    assert await _values(await restarts.start()) == [b"x"]


async def test_a_connection_that_was_not_opened_says_so(tmp_path: Path) -> None:
    mq = flintmq.connect(f"file://{tmp_path}/data")
    with pytest.raises(flintmq.InvalidRequest, match="not opened"):
        await mq.publish("orders", b"x")
    with pytest.raises(flintmq.InvalidRequest, match="not opened"):
        await mq.create_topic("orders")
    with pytest.raises(flintmq.InvalidRequest, match="not opened"):
        await mq.topics()
    await mq.close()


async def test_closing_waits_for_what_is_on_its_way(
    restarts: Restarts, background: Background
) -> None:
    mq = await restarts.start()
    await mq.create_topic("orders")
    publishing = [background.start(mq.publish("orders", b"%d" % n)) for n in range(10)]
    await asyncio.sleep(0)
    await mq.close()
    outcomes = await asyncio.gather(*publishing, return_exceptions=True)

    mq = await restarts.start()
    there = await _values(mq)
    acknowledged = [
        b"%d" % n for n, outcome in enumerate(outcomes) if isinstance(outcome, flintmq.Receipt)
    ]
    assert set(acknowledged) <= set(there)
    assert all(isinstance(o, flintmq.Receipt | flintmq.Closed) for o in outcomes)


async def test_a_disk_that_fails_leaves_publishers_uncertain_and_stops_the_broker(
    restarts: Restarts, background: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    mq = await restarts.start()
    await mq.create_topic("full", retention_count=1, overflow="block")
    await mq.publish("full", b"x")
    await mq.publish("orders", b"safe")
    reader = await mq.reader("orders", name="n")
    blocked = await background.waiting(mq.publish("full", b"y"))

    def fail(file: LocalFile) -> None:
        raise flintmq.StorageFailed("sync", file.name, "as the test wants it")

    with monkeypatch.context() as patched:
        patched.setattr(LocalFile, "sync", fail)
        with pytest.raises(flintmq.OutcomeUnknown, match="as the test wants it"):
            await mq.publish("orders", b"unknown")
        with pytest.raises(flintmq.StorageFailed):
            await blocked
    for _ in range(2):
        with pytest.raises(flintmq.StorageFailed):
            await mq.publish("orders", b"refused")
    with pytest.raises(flintmq.StorageFailed):
        await mq.create_topic("other")
    message = await reader.read()
    assert message is not None
    assert message.value == b"safe"
    with pytest.raises(flintmq.StorageFailed):
        await reader.commit()
    publisher = mq.publisher("orders")
    publisher.send(b"refused")
    with pytest.raises(flintmq.StorageFailed):
        await publisher.flush()

    mq = await restarts.restart()
    assert await _values(mq) in ([b"safe"], [b"safe", b"unknown"])
    await mq.publish("orders", b"again")
