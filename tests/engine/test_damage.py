"""Damage in sealed segments: it costs the messages it hit, and nothing else."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from struct import unpack
from typing import Any

import pytest

from flintmq.broker_api import Fetch
from flintmq.client.client import Client
from flintmq.engine import checkpoints
from flintmq.engine.host import Host, durable_broker
from flintmq.engine.leading.topic_figures import stats_of
from flintmq.engine.row_stats import merged_stats
from flintmq.errors import Corrupt
from flintmq.group_model import Order
from flintmq.rows import Message
from flintmq.serde.codec import Codec
from flintmq.storage.inspect import verify
from flintmq.storage.repair import carry_out, plan_repair
from flintmq.testing import ManualClock, SimulatedFileSystem, settle

JOURNAL_FILE_BYTES = 32 * 1024
ROWS = 70  # of a batch: enough not to be gathered with others


class Place:
    """A broker on a disk that can be damaged, and its client."""

    def __init__(self, disk: SimulatedFileSystem, clock: ManualClock) -> None:
        self.disk, self.clock = disk, clock
        self.broker = durable_broker(
            disk, clock=clock, decoder=Codec(), journal_file_bytes=JOURNAL_FILE_BYTES
        )
        clock.wait_also_for(self.broker.settled)
        self.mq = Client(self.broker, Codec(), auto_create=True, timeout=30)

    async def fill(self, topic: str, *names: str, rows: int = ROWS, **options: Any) -> None:
        """A batch for each name, in a segment of its own."""
        for name in names:
            values = [f"{name} {row}".encode() for row in range(rows)]
            await self.mq.publish_batch(topic, values, **options)
            await self.broker.host.checkpoint()

    def damage(self, text: str) -> str:
        """Flip a bit of the segment that has this text; its name."""
        for name in self.disk.list("segments"):
            at = self.disk.contents(f"segments/{name}").find(text.encode())
            if at >= 0:
                self.disk.flip(f"segments/{name}", at, 1)
                self.broker.host.kept[0].store.forget(f"segments/{name}")
                return name
        raise AssertionError(f"{text!r} is in no segment")

    def damage_index(self, text: str) -> None:
        for name in self.disk.list("segments"):
            content = self.disk.contents(f"segments/{name}")
            if text.encode() in content:
                (index,) = unpack("<Q", content[-24:-16])
                assert len(content) - 48 > index > content.index(text.encode())
                self.disk.flip(f"segments/{name}", index + 8, 1)
                self.broker.host.kept[0].store.forget(f"segments/{name}")

    def stats(self, topic: str) -> Any:
        return stats_of(self.broker.shard.topics[topic])

    def merged_stats(self, topic: str) -> Any:
        return merged_stats(topic, [self.stats(f"{topic}/{n}") for n in (0, 1)])

    async def again(self) -> Place:
        """After a kill and a new start."""
        after = Place(self.disk.crash("everything"), self.clock)
        await after.mq
        return after


@pytest.fixture
async def place(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    monkeypatch.setattr(Host, "first_file_bytes", JOURNAL_FILE_BYTES)
    place = Place(SimulatedFileSystem(), ManualClock())
    async with place.mq:
        yield place


async def read_all(mq: Client, topic: str) -> list[bytes]:
    """What a reader gets that goes on behind damage."""
    found: list[bytes] = []
    async with mq.reader(topic) as reader:
        while True:
            try:
                rows = reader.read_batch_nowait(1000)
            except Corrupt as error:
                await reader.seek(error.next_offset or 0)
                continue
            if not rows:
                return found
            found += rows.values


# --- readers


async def test_readers_get_what_is_before_hear_the_offsets_and_go_on_behind(place: Place) -> None:
    await place.fill("orders", "first", "second", "third")
    place.damage("second 3")

    async with place.mq.reader("orders") as reader:
        before = reader.read_batch_nowait(1000)
        assert before.values == [b"first %d" % row for row in range(ROWS)]
        for _ in range(2):
            with pytest.raises(Corrupt) as told:
                reader.read_batch_nowait(1000)
        error = told.value
        assert (error.topic, error.first_offset, error.next_offset) == ("orders", ROWS, 2 * ROWS)
        assert f"offsets {ROWS} to {2 * ROWS - 1} of topic 'orders'" in str(error)
        assert f"seek to offset {2 * ROWS}" in str(error)
        assert await reader.position() == ROWS
        assert error.next_offset is not None
        await reader.seek(error.next_offset)
        assert reader.read_batch_nowait(1000).values == [b"third %d" % row for row in range(ROWS)]


async def test_a_reader_of_partitions_goes_on_behind_the_damage_of_one(place: Place) -> None:
    await place.mq.create_topic("orders", partitions=2)
    await place.fill("orders", "first", "second")
    whole = {message.value for message in await read_partitions(place.mq, [])}
    place.damage("first 3")

    told: list[Corrupt] = []
    left = {message.value for message in await read_partitions(place.mq, told)}

    (error,) = told
    assert error.topic == "orders"
    assert error.first_offset is not None
    assert error.next_offset is not None
    assert len(whole) - len(left) == error.next_offset - error.first_offset
    assert sum(part.damaged for part in place.merged_stats("orders").partitions) == len(
        whole - left
    )


async def read_partitions(mq: Client, told: list[Corrupt]) -> list[Message]:
    found: list[Message] = []
    async with mq.reader("orders") as reader:
        while await reader.lag():
            try:
                found += reader.read_batch_nowait(1000)
            except Corrupt as error:
                told.append(error)
                await reader.seek({error.partition: error.next_offset or 0})
    return found


async def test_what_a_reader_left_that_is_damaged_is_told_once_to_who_gets_it(place: Place) -> None:
    await place.fill("orders", "first", "second", "third")
    async with place.mq.reader("orders", name="r") as staying:
        async with place.mq.reader("orders", name="r") as leaving:
            assert len(leaving.read_batch_nowait(2 * ROWS)) == 2 * ROWS
        place.damage("first 3")

        with pytest.raises(Corrupt):
            staying.read_batch_nowait(1000)

        got = [*staying.read_batch_nowait(1000).values, *staying.read_batch_nowait(1000).values]
        assert got == [f"{n} {row}".encode() for n in ("second", "third") for row in range(ROWS)]


async def test_a_reader_of_a_name_that_goes_on_behind_damage_leaves_what_others_hold(
    place: Place,
) -> None:
    await place.fill("orders", "first", "second", "third")
    place.damage("second 3")
    a = await place.mq.reader("orders", name="n")
    b = await place.mq.reader("orders", name="n")
    assert len(a.read_batch_nowait(ROWS)) == ROWS
    behind = []
    for reader in (a, b):
        with pytest.raises(Corrupt) as caught:
            await reader.read()
        behind.append(caught.value.next_offset or 0)

    await b.seek(behind[1])
    assert b.read_batch_nowait(10).values[0] == b"third 0"
    await a.seek(behind[0])
    assert a.read_batch_nowait(1).values == [b"third 10"], "b has got the ones before"
    assert await b.commit() == 0
    await a.close()

    assert b.read_batch_nowait(ROWS).values == [b"first %d" % row for row in range(ROWS)]
    assert b.read_batch_nowait(1).values == [b"third 10"]
    await b.close()


async def test_a_seek_behind_damage_in_what_a_reader_left_takes_nothing_back(place: Place) -> None:
    await place.fill("orders", "first", "second", "third")
    a = await place.mq.reader("orders", name="n")
    b = await place.mq.reader("orders", name="n")
    assert len(a.read_batch_nowait(2 * ROWS)) == 2 * ROWS
    assert b.read_batch_nowait(1).values == [b"third 0"]
    place.damage("first 3")
    await a.close()
    with pytest.raises(Corrupt) as caught:
        await b.read()

    await b.seek(caught.value.next_offset or 0)

    assert b.read_batch_nowait(ROWS).values == [b"second %d" % row for row in range(ROWS)]
    assert b.read_batch_nowait(1).values == [b"third 1"]
    await b.close()


async def test_what_the_disk_could_not_read_is_not_told_as_damaged_for_good(place: Place) -> None:
    await place.fill("orders", "first")
    place.broker.host.kept[0].store.close()
    place.disk.fail("pread", name="segments", error=errno.EIO, times=100)

    async with place.mq.reader("orders") as reader:
        with pytest.raises(Corrupt, match=r"could not be read .*start the broker again") as caught:
            await reader.read()

    assert not caught.value.is_proven
    after = await place.again()
    assert len(await read_all(after.mq, "orders")) == ROWS
    await after.mq.close()


async def test_a_fetch_gets_what_is_before_and_hears_of_it_at_its_offset(place: Place) -> None:
    await place.fill("orders", "first", "second")
    place.damage("second 3")

    def fetch(offset: int) -> Any:
        return place.broker.fetch(
            Fetch(
                "orders",
                offset,
                end=None,
                max_rows=1000,
                max_bytes=1 << 20,
                filter=None,
                with_expired=False,
            )
        )

    assert (await fetch(0)).position == ROWS
    with pytest.raises(Corrupt):
        await fetch(ROWS)


async def test_all_other_topics_and_the_rest_of_this_one_go_on(place: Place) -> None:
    await place.mq.create_topic("orders", retention_age=60)
    await place.fill("orders", "first", "second")
    await place.fill("others", "other")
    place.damage("first 3")

    await place.clock.advance(61)
    await place.mq.publish("orders", b"on")
    await place.mq.publish("others", b"on")

    assert await read_all(place.mq, "others") == [*(b"other %d" % n for n in range(ROWS)), b"on"]
    assert (await read_all(place.mq, "orders"))[-1:] == [b"on"]
    await place.broker.host.checkpoint()
    await place.mq.delete_topic("orders")


async def test_where_the_index_is_damaged_all_of_the_segment_is(place: Place) -> None:
    await place.fill("orders", "first", "second")
    place.damage_index("first 3")

    assert await read_all(place.mq, "orders") == [b"second %d" % row for row in range(ROWS)]
    assert place.stats("orders").damaged_ranges == [(0, ROWS)]


async def test_a_time_in_a_damaged_batch_is_its_beginning(place: Place) -> None:
    await place.fill("orders", "first", "second")
    place.damage("first 3")

    assert place.broker.shard.topics["orders"].log.offset_at_time(place.clock.now_ms()) == 0


# --- retention


@pytest.mark.parametrize("options", [{"retention_age": 60}, {"ttl": 60}])
async def test_what_is_damaged_is_dropped_when_its_time_is_up(
    place: Place, options: dict[str, Any]
) -> None:
    await place.mq.create_topic("orders", **options)
    await place.fill("orders", "first")
    await place.clock.advance(30)
    await place.fill("orders", "second")
    place.damage("first 3")
    place.damage("second 3")

    await place.clock.advance(31)
    await place.mq.publish("orders", b"on")

    assert place.stats("orders").first_offset == ROWS
    async with place.mq.reader("orders") as reader:
        with pytest.raises(Corrupt):
            reader.read_batch_nowait(10)


async def test_messages_with_an_expiry_of_their_own_are_dropped_with_it(place: Place) -> None:
    await place.fill("orders", "first", ttl=60)
    await place.fill("orders", "second")
    place.damage("first 3")

    await place.clock.advance(61)
    await place.mq.publish("orders", b"on")

    assert place.stats("orders").first_offset == ROWS
    assert len(await read_all(place.mq, "orders")) == ROWS + 1


@pytest.mark.parametrize("limit", ["retention_count", "retention_bytes"])
async def test_limits_drop_what_is_damaged_and_the_bytes_add_up(place: Place, limit: str) -> None:
    await place.fill("orders", "first", "second", "third")
    size = place.stats("orders").byte_count
    place.damage("first 3")
    place.damage("second 3")

    limits: Any = {limit: 5 if limit == "retention_count" else 50}
    await place.mq.configure_topic("orders", **limits)

    left = await read_all(place.mq, "orders")
    assert left == [b"third %d" % row for row in range(ROWS - len(left), ROWS)]
    assert 1 <= len(left) <= 6 < size
    assert place.stats("orders").byte_count == sum(map(len, left))


async def test_a_batch_dropped_by_and_by_counts_for_what_it_was_however_it_is_read(
    place: Place,
) -> None:
    await place.fill("orders", "a" * 50, "second")
    size = place.stats("orders").byte_count
    second = sum(len(b"second %d" % row) for row in range(ROWS))

    await place.mq.purge_topic("orders", before=10)
    place.damage("a" * 50 + " 30")
    for before in (20, 40, 60):
        await place.mq.purge_topic("orders", before=before)
        assert second < place.stats("orders").byte_count < size
    await place.mq.purge_topic("orders", before=ROWS)

    assert place.stats("orders").byte_count == second


async def test_limits_are_kept_without_a_look_at_the_disk_damaged_or_not(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in ("whole", "damaged"):
        await place.mq.create_topic(topic, retention_bytes=5_000)
        await place.fill(topic, *(f"{topic:>10}" * times for times in (1, 3, 2)))
    place.damage("damaged" + " 30")
    place.damage_index("   damaged" * 2)
    looks: list[str] = []
    monkeypatch.setattr(place.disk, "_look", lambda what, path: looks.append(f"{what} {path}"))

    for topic in ("whole", "damaged"):
        for size in (1, 700, 30):
            await place.mq.publish(topic, b"x" * size)
        await place.mq.purge_topic(topic, before=place.stats(topic).first_offset + 5)

    assert not [look for look in looks if look.startswith("pread")]
    whole, damaged = place.stats("whole"), place.stats("damaged")
    assert whole.first_offset == damaged.first_offset > 30
    assert whole.byte_count == damaged.byte_count < 5_000


async def test_what_a_group_holds_against_its_age_is_dropped_by_its_expiry(place: Place) -> None:
    await place.mq.create_topic("orders", retention_age=60, keep_until_settled=True)
    await place.mq.poll("orders", "workers")
    await place.fill("orders", "first", ttl=300)
    await place.fill("orders", "second")

    await place.clock.advance(290)
    assert place.stats("orders").first_offset == 0
    await place.clock.advance(20)
    assert place.stats("orders").first_offset == ROWS


# --- groups


@pytest.mark.parametrize("order", ["log", "key", "priority"])
async def test_a_group_passes_over_what_nobody_can_have_and_says_so(
    place: Place, order: Order, caplog: pytest.LogCaptureFixture
) -> None:
    await place.mq.poll("orders", "workers", order=order)
    await place.fill("orders", "first", "second", "third", priority=3, key="k")
    place.damage("second 3")

    got: list[bytes] = []
    while len(got) < 2 * ROWS:
        messages = await place.mq.poll("orders", "workers", max=40, wait=60)
        got += [message.value for message in messages]
        await place.mq.ack(messages)

    wanted = [f"{name} {row}".encode() for name in ("first", "third") for row in range(ROWS)]
    assert got == wanted
    await place.clock.advance(0)  # until the journal has what was passed over
    stats = await place.mq.group_stats("orders", "workers")
    assert stats.drops == {"damaged": ROWS}
    assert stats.lag == 0
    assert "passes over messages that are damaged" in caplog.text


async def test_delayed_ones_that_are_damaged_keep_no_group_waiting(place: Place) -> None:
    await place.mq.poll("orders", "workers")
    await place.fill("orders", "first", delay=60)
    await place.fill("orders", "second", delay=60)
    place.damage("first 3")
    after = await place.again()

    await place.clock.advance(61)
    got = await after.mq.poll("orders", "workers", max=1000)

    assert [message.value for message in got] == [b"second %d" % row for row in range(ROWS)]
    await place.clock.advance(0)  # until the journal has what was passed over
    assert (await after.mq.group_stats("orders", "workers")).drops == {"damaged": ROWS}
    await after.mq.close()


async def test_dead_letters_that_are_damaged_are_passed_over(place: Place) -> None:
    await place.mq.create_topic("orders", max_deliveries=1)
    await place.mq.poll("orders", "workers")
    await place.fill("orders", "first")
    got = await place.mq.poll("orders", "workers", max=2)
    place.damage("first 3")

    for message in got:
        await message.reject("cannot be read any more")

    stats = await place.mq.group_stats("orders", "workers")
    assert stats.drops == {"damaged": 2}
    assert stats.dead_letters == 0


# --- checkpoints, restarts, backups, repair


@pytest.mark.parametrize("is_known", [True, False])
async def test_sections_that_cannot_be_joined_stay_and_checkpoints_go_on(
    place: Place, is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "SHARED_SECTIONS_MAX", 2)
    await place.fill("orders", "first", "second")
    place.damage("second 3")
    if is_known:
        await read_all(place.mq, "orders")

    await place.fill("orders", "third", "fourth", "fifth")

    assert place.stats("orders").damaged_ranges == [(ROWS, 2 * ROWS)]
    wanted = [
        f"{name} {row}".encode()
        for name in ("first", "third", "fourth", "fifth")
        for row in range(ROWS)
    ]
    assert await read_all(place.mq, "orders") == wanted
    after = await place.again()
    assert await read_all(after.mq, "orders") == wanted
    await after.mq.close()


@pytest.mark.parametrize("what", ["batch", "index", "file"])
async def test_a_start_is_not_refused(place: Place, what: str) -> None:
    await place.mq.create_topic("orders", retention_age=60, keep_until_settled=True)
    await place.mq.poll("orders", "workers")
    await place.fill("orders", "first", ttl=300)
    await place.fill("orders", "second", delay=5)
    if what == "index":
        place.damage_index("first 3")
        place.damage_index("second 3")
    else:
        for name in (place.damage("first 3"), place.damage("second 3")):
            if what == "file":
                place.disk.fail("pread", name=name, times=10**6)

    after = await place.again()

    if what == "file":
        after.disk._faults = place.disk._faults
    await after.mq.publish("orders", b"on")
    assert await read_all(after.mq, "orders") == [b"on"]
    assert after.stats("orders").damaged == 2 * ROWS
    await place.clock.advance(600)
    await after.mq.publish("orders", b"and on")
    await after.mq.close()


async def test_a_backup_is_made_all_the_same(place: Place) -> None:
    await place.fill("orders", "first", "second")
    place.damage("first 3")
    target = SimulatedFileSystem()

    await place.broker.host.back_up_to(target)

    copy = Place(target, place.clock)
    async with copy.mq:
        assert await read_all(copy.mq, "orders") == [b"second %d" % row for row in range(ROWS)]


async def test_a_backup_copies_around_what_the_disk_cannot_read(place: Place) -> None:
    await place.fill("orders", "first", "second")
    place.disk.fail("pread", name=place.damage("first 3"), times=10**6)
    target = SimulatedFileSystem()

    await place.broker.host.back_up_to(target)

    copy = Place(target, place.clock)
    async with copy.mq:
        assert await read_all(copy.mq, "orders") == [b"second %d" % row for row in range(ROWS)]


async def test_repair_still_mends_it(place: Place) -> None:
    await place.fill("orders", "first", "second", "third")
    place.damage("second 3")
    await place.mq.close()

    assert any(problem.is_damage for problem in verify(place.disk))
    carry_out(place.disk, plan_repair(place.disk, cut_journal=False))

    assert not any(problem.is_damage for problem in verify(place.disk))
    after = await place.again()
    assert await read_all(after.mq, "orders") == [b"third %d" % row for row in range(ROWS)]
    assert after.stats("orders").damaged == 0
    await after.mq.close()


# --- what is damage


async def test_a_read_that_fails_once_is_tried_again(place: Place) -> None:
    await place.fill("orders", "first")
    place.broker.host.kept[0].store.close()
    place.disk.fail("pread", name="segments", error=errno.EIO)

    assert len(await read_all(place.mq, "orders")) == ROWS
    assert place.stats("orders").damaged == 0


async def test_too_many_open_files_are_no_damage(place: Place) -> None:
    from flintmq.errors import StorageFailed
    from flintmq.storage.segments import is_damage

    error = StorageFailed("open", "a.seg", "Too many open files")
    error.__cause__ = OSError(errno.EMFILE, "Too many open files")
    assert not is_damage(error)
    error.__cause__ = OSError(errno.EIO, "Input/output error")
    assert is_damage(error)


async def test_too_many_open_files_when_a_message_is_due_cost_a_feed_that_message_alone(
    place: Place,
) -> None:
    await place.fill("orders", "late", delay=5)
    place.broker.host.kept[0].store.close()
    async with place.mq.live("orders") as feed:
        place.disk.fail("open", name="segments", error=errno.EMFILE, times=10**6)
        await place.clock.advance(10)
        place.disk.heal()

        await place.mq.publish("orders", b"and on")
        assert (await feed.read()).value == b"and on"
    assert place.stats("orders").drops["feed"] == ROWS
    assert len(await place.mq.poll("orders", "workers", max=200)) == ROWS + 1


async def test_what_was_unreadable_while_it_was_joined_is_readable_where_it_is_now(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "SHARED_SECTIONS_MAX", 2)
    await place.fill("orders", "first", "second")
    log: Any = place.broker.shard.topics["orders"].log
    write = place.broker.host.kept[0].checkpoints.write

    def write_while_the_disk_stutters(plan: Any) -> Any:
        done = write(plan)
        for section in list(log.sections):
            log.note_damage(section.base, section.next, section.file, "for a while", False)
        return done

    ours = place.broker.host.kept[0].checkpoints
    monkeypatch.setattr(ours, "write", write_while_the_disk_stutters)
    await place.fill("orders", "third")

    assert len(log.sections) == 1, "nothing was joined"
    assert place.stats("orders").damaged == 0
    assert len(await read_all(place.mq, "orders")) == 3 * ROWS


async def test_control_columns_that_are_damaged_cost_nothing_they_are_there_twice(
    place: Place,
) -> None:
    await place.mq.poll("orders", "workers", order="priority")
    await place.fill("orders", "first", priority=3)
    await place.fill("orders", "second", priority=7)
    for name in place.disk.list("segments"):
        size = len(place.disk.contents(f"segments/{name}"))
        place.disk.flip(f"segments/{name}", size - 50, 1)
        place.broker.host.kept[0].store.forget(f"segments/{name}")

    got = await place.mq.poll("orders", "workers", max=2)

    assert [message.value for message in got] == [b"second 0", b"second 1"]
    assert place.stats("orders").damaged == 0


# --- looking for it


async def test_the_scrub_finds_what_nobody_has_read(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    await place.fill("orders", "first", "second")
    await place.fill("others", "other")
    place.broker.host.damages.scrubber.run_pass()
    await settle()
    assert place.broker.host.damages.known() == {}
    name = place.damage("second 3")
    told: list[int] = []
    place.broker.host.damages.on_noted = lambda: told.append(place.broker.host.damages.messages())

    for _ in range(2):
        place.broker.host.damages.scrubber.run_pass()
        await settle()

    assert {
        topic: [d[:3] for d in found] for topic, found in place.broker.host.damages.known().items()
    } == {"orders": [(ROWS, 2 * ROWS, f"segments/{name}")]}
    assert told == [ROWS]
    assert caplog.text.count("messages are damaged on disk") == 1
    figures = place.broker.journal_figures()
    assert figures is not None
    assert (figures.damaged_messages, figures.scrub_passes) == (ROWS, 3)
    assert figures.scrub_bytes > 0


async def test_the_scrub_finds_a_lost_index_and_a_lost_copy(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    await place.fill("orders", "first")
    await place.fill("orders", "second", priority=2)
    place.damage_index("first 3")
    name = place.disk.list("segments")[1]
    place.disk.flip(f"segments/{name}", len(place.disk.contents(f"segments/{name}")) - 50, 1)

    place.broker.host.damages.scrubber.run_pass()
    await settle()

    assert place.stats("orders").damaged_ranges == [(0, ROWS)]
    assert "no message is lost by that" in caplog.text
    assert len(await read_all(place.mq, "orders")) == ROWS


async def test_damage_in_a_segment_that_is_gone_meanwhile_is_not_told(place: Place) -> None:
    await place.fill("orders", "first", "second")
    place.damage("first 3")
    await place.mq.purge_topic("orders", before=ROWS)
    await place.broker.host.checkpoint()

    place.broker.host.damages.scrubber.run_pass()
    await settle()

    assert place.broker.host.damages.known() == {}


# --- what is staged


async def test_a_damaged_part_that_is_not_committed_is_left_out_and_staged_again(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    await place.mq.publish("orders", b"before")
    await place.mq.stage("nightly", 7, "a", {"orders": [b"part of a"]})
    await place.mq.stage("nightly", 7, "b", {"orders": [b"part of b"]})
    await place.broker.host.checkpoint()
    place.damage("part of b")

    after = await place.again()
    assert "part 'b' of number 7, staged by 'nightly', is damaged" in caplog.text
    with pytest.raises(Corrupt, match="in part 'b'; stage that again, or abort the number"):
        await after.mq.commit("nightly", 7, ["a", "b"])
    await after.mq.stage("nightly", 7, "b", {"orders": [b"part of b"]})
    await after.mq.commit("nightly", 7, ["a", "b"])
    assert await read_all(after.mq, "orders") == [b"before", b"part of a", b"part of b"]
    await after.mq.close()


@pytest.mark.parametrize("what", ["batch", "index"])
@pytest.mark.parametrize("is_repaired", [False, True])
async def test_a_damaged_part_whose_commit_is_in_the_journal_refuses_no_start(
    place: Place, what: str, is_repaired: bool
) -> None:
    await place.mq.poll("orders", "g")
    await place.mq.publish("orders", b"before")
    await place.mq.stage("nightly", 7, "a", {"orders": [b"part of a"], "other": [b"whole"] * 2})
    await place.broker.host.checkpoint()
    await place.mq.stage("nightly", 7, "b", {"orders": [b"part of b"] * 3})
    await place.broker.host.checkpoint()
    await place.mq.commit("nightly", 7, ["a", "b"])
    await place.mq.publish("orders", b"behind")
    (place.damage if what == "batch" else place.damage_index)("part of b")
    place = Place(place.disk.crash("everything"), place.clock)
    if is_repaired:
        carry_out(place.disk, plan_repair(place.disk, cut_journal=False))
    lost = (2, 5) if what == "batch" and not is_repaired else (1, 5)

    for start in range(3):
        killed, place = place, await place.again()
        if start:
            await killed.mq.close()  # on a disk of its own; so that no thread is left
        readable = [b"before", b"part of a"][: lost[0]]
        assert await read_all(place.mq, "orders") == [*readable, b"behind"]
        assert place.stats("orders").damaged_ranges == [lost]
        assert await read_all(place.mq, "other") == [b"whole"] * 2
        assert [one.offset for one in await place.mq.commit("nightly", 7, ["a", "b"])] == [1, 0]
        await place.broker.host.checkpoint()
        place.broker.host.damages.scrubber.run_pass()
        await settle()
    found = await place.mq.poll("orders", "g", max=10)
    assert [message.value for message in found] == [*readable, b"behind"]
    await place.mq.close()


async def test_a_part_that_cannot_be_read_and_was_committed_is_tried_by_the_next_start(
    place: Place,
) -> None:
    await place.mq.stage("nightly", 7, "a", {"orders": [b"part of a"]})
    await place.broker.host.checkpoint()
    await place.mq.commit("nightly", 7, ["a"])
    disk = place.disk.crash("everything")
    disk.fail("pread", name="segments/", times=1_000_000)
    with pytest.raises(Corrupt, match="cannot be read from the disk; check the disk"):
        await Place(disk, place.clock).mq
    disk.heal()

    after = Place(disk, place.clock)
    await after.mq
    assert await read_all(after.mq, "orders") == [b"part of a"]
    await after.mq.close()


async def test_what_the_disk_could_not_read_for_a_while_is_not_lost_to_a_group(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """A cable, a controller: no checksum says that the messages are gone."""
    await place.fill("orders", "first", "second")
    await place.mq.poll("orders", "g", max=1)
    for name in place.disk.list("segments"):
        place.broker.host.kept[0].store.forget(f"segments/{name}")
    place.disk.fail("pread", name="segments/", times=1_000_000)
    assert await place.mq.poll("orders", "g", max=1000) == []
    place.disk.heal()
    stats = await place.mq.group_stats("orders", "g")
    assert (stats.lag, stats.drops) == (2 * ROWS, {})
    assert "sets messages aside that the disk cannot read" in caplog.text
    assert "passes over" not in caplog.text

    after = await place.again()
    await after.clock.advance(60)
    assert len(await after.mq.poll("orders", "g", max=1000)) == 2 * ROWS
    await after.mq.close()
