"""The durable broker and power cuts: after every single change to the disk, with any part of what
was not synced kept, it starts; what was acknowledged is there, in order and once, and nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from itertools import product
from math import prod
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flintmq.engine.checkpoints import RETRY_SECONDS as CHECKPOINT_RETRY_SECONDS
from flintmq.engine.host import durable_broker
from flintmq.errors import StorageFull
from flintmq.storage.manifest import read_manifest, write_manifest
from flintmq.testing import Crashed, ManualClock, SimulatedFileSystem
from flintmq.testing.simulated_filesystem import Keep
from tests.engine.queue_story import QueueStory
from tests.engine.stepping import OWN_SEGMENT_BYTES, Life, Story, small_sizes

EXHAUSTIVE_UP_TO = 8
DRAWN = 3
STEP = 2
"""Of the longer stories, every so many calls."""

Work = Callable[[Story, SimulatedFileSystem], Awaitable[None]]


@pytest.fixture(autouse=True, scope="module")
def sizes() -> Iterator[None]:
    with small_sizes():
        yield


async def beginning(story: Story, disk: SimulatedFileSystem) -> None:
    """Topics of every kind, publishes of every kind, and the first checkpoints."""
    await story.open(disk)
    await story.create("orders")
    await story.publish("orders")
    await story.publish("orders", 3)
    await story.create("parts", partitions=2)
    await story.publish_together(("parts/0", 1), ("parts/1", 2), ("orders", 1), ("parts/0", 1))
    await story.publish("orders", 2, key="k", expiry=10**15)
    await story.create("kept", retention_count=3)
    await story.publish("kept", 2)
    await story.commit("orders", 2)
    await story.checkpoint()
    await story.publish("kept", 3)
    await story.publish_once("orders", "p", 2**64 - 1)
    await story.publish_once("orders", "p", 7, 2)
    await story.publish_once("orders", "p", 7, 2)
    await story.publish("orders", 3, size=OWN_SEGMENT_BYTES // 2)
    await story.checkpoint()
    await story.publish_once("orders", "p", 7, 2)


async def middle(story: Story, disk: SimulatedFileSystem) -> None:
    """Sections that are merged and dropped, topics that go and come back, a journal that rolls."""
    await story.open(disk)
    await story.create("orders")
    await story.create("kept", retention_count=2)
    await story.create("gone")
    await story.publish_together(("orders", 1), ("gone", 2), ("kept", 1))
    for number in range(4):
        await story.checkpoint()
        await story.publish_together(("orders", 2), ("kept", 1))
        await story.commit("kept", number)
    await story.publish("gone", 1, size=OWN_SEGMENT_BYTES)
    await story.delete("gone")
    await story.checkpoint()
    await story.create("gone")
    await story.publish("gone")
    await story.publish("kept", 4)
    await story.checkpoint()
    await story.publish("orders", 5, size=OWN_SEGMENT_BYTES // 2)
    await story.publish("orders", size=OWN_SEGMENT_BYTES)
    await story.delete("kept")
    await story.close()
    await story.open(disk)
    await story.publish("orders")
    await story.checkpoint()
    await story.close()


async def purges(story: Story, disk: SimulatedFileSystem) -> None:
    """What is purged before, during and after a checkpoint, in part and as a whole."""
    await story.open(disk)
    await story.create("orders")
    await story.publish("orders", 3)
    await story.purge("orders", 2)
    await story.checkpoint()
    await story.publish("orders", 3, size=OWN_SEGMENT_BYTES // 2)
    await story.checkpoint()
    await story.purge("orders", 5)
    await story.publish("orders", 2)
    await story.purge("orders", 8)
    await story.checkpoint()
    await story.publish("orders")
    await story.purge("orders", 9)
    await story.close()


async def scarce(story: Story, disk: SimulatedFileSystem) -> None:
    """A disk that runs full, a topic that is deleted to make room, and what goes on then."""
    life = await story.open(disk)
    await story.create("orders")
    await story.create("large")
    await story.publish("orders")
    for _ in range(3):
        await story.publish("large", 2, size=OWN_SEGMENT_BYTES)
        await story.checkpoint()
    disk.size_max = 1 << 30
    disk.size_max += 3_000 - disk.free_bytes()
    with suppress(StorageFull):
        while True:
            await story.publish("orders", size=200)
    disk.exists("")
    await story.delete("large")
    for _ in range(3):
        await life.clock.advance(CHECKPOINT_RETRY_SECONDS)
        disk.exists("")  # raises where the power went in a checkpoint of its own
        life.broker.host.step()
    await story.publish("orders")
    await story.checkpoint()
    await story.close()


async def queues(story: Story, disk: SimulatedFileSystem) -> None:
    """Groups that take, settle, delay and bury; letters that go back; checkpoints in between."""
    assert isinstance(story, QueueStory)
    life = await story.open(disk)
    await story.create("orders")
    await story.join("orders", "g")
    await story.join("orders", "idle", "log")
    await story.publish("orders", 6)
    await story.take("g", 4)
    await story.ack("g", 2)
    await story.nack("g", 1, 5.0)
    await story.reject("g", 1)
    await story.checkpoint()
    offset = await story.put("orders", 1, deliver_at=life.clock.now_ms() + 60_000)
    await story.cancel("orders", offset, life.messages("orders")[-1][1])
    await story.publish("orders", 3, priority=5)
    await story.take("g", 5)
    await story.reject("g", 2)
    await story.redrive("g")
    await story.pause("g", True)
    await story.nack("g", 1, 0)
    await story.checkpoint()
    await story.create("again")
    await story.join("again", "keyed", "key")
    await story.publish("again", 4, key="k")
    for _ in range(2):
        await story.take("keyed", 4)
        await story.ack("keyed", 1)
    await story.reset("keyed")
    await story.pause("g", False)
    await story.take("keyed", 1)
    await story.close()
    await story.open(disk)
    await story.join("orders", "g")
    await story.take("g", 20)
    await story.ack("g", 3)
    await story.reject("g", 1)
    await story.checkpoint()
    await story.ack("g", 1)
    await story.close()


WORKS = [beginning, middle, purges, scarce, queues]
LONG = pytest.param(queues, marks=pytest.mark.slow)
WORKS_AND_LONG = [beginning, middle, purges, scarce, LONG]
STORIES: dict[Work, type[Story]] = {queues: QueueStory}


def states(disk: SimulatedFileSystem, seed: object) -> Iterator[Keep]:
    """What the disk may hold after a power cut here."""
    counts = disk.unsynced()
    if prod(counts) <= EXHAUSTIVE_UP_TO:
        yield from product(*(range(count) for count in counts))
        return
    yield "nothing"
    yield "everything"
    for number in range(DRAWN):
        yield Random(f"{seed} {number}")


async def until_crash(
    work: Work, calls: int, disk: SimulatedFileSystem | None = None
) -> tuple[Story, SimulatedFileSystem]:
    story, disk = STORIES.get(work, Story)(), disk or SimulatedFileSystem()
    disk.stop_after(calls)
    with pytest.raises(Crashed):
        await work(story, disk)
    return story, disk


async def calls_of(work: Work) -> int:
    disk, story = SimulatedFileSystem(), STORIES.get(work, Story)()
    await work(story, disk)
    return disk.call_count


async def reopened(disk: SimulatedFileSystem, story: Story) -> Life:
    life = await Life(disk).open()
    story.check(life)
    return life


@pytest.mark.slow
@pytest.mark.parametrize("work", WORKS)
async def test_a_power_cut_after_any_change_loses_nothing_that_was_acknowledged(work: Work) -> None:
    for calls in range(await calls_of(work)):
        story, disk = await until_crash(work, calls)
        for keep in states(disk, calls):
            await reopened(disk.crash(keep), story)


@pytest.mark.slow
@pytest.mark.parametrize("work", WORKS_AND_LONG)
async def test_after_a_power_cut_the_broker_goes_on_and_survives_the_next(work: Work) -> None:
    for calls in range(1, await calls_of(work), STEP):
        story, disk = await until_crash(work, calls)
        random = Random(calls)
        disk = disk.crash(random)
        disk.size_max = None
        life = await reopened(disk, story)
        await story.go_on(life)
        if calls % 4:
            await story.checkpoint()
        await reopened(disk.crash(random), story)


@pytest.mark.slow
@pytest.mark.parametrize("work", WORKS_AND_LONG)
async def test_a_killed_process_and_then_a_power_cut_lose_nothing(work: Work) -> None:
    """What the killed process did not sync is seen by the next one and is not on the disk."""
    for calls in range(await calls_of(work)):
        story, disk = await until_crash(work, calls)
        disk.end_process()
        life = await reopened(disk, story)
        if calls % STEP:
            await reopened(disk.crash("nothing"), story)
            continue
        disk.size_max = None
        await story.go_on(life)
        await reopened(disk.crash(Random(calls)), story)


@pytest.mark.slow
@pytest.mark.parametrize("work", WORKS_AND_LONG)
async def test_a_power_cut_while_the_broker_recovers_changes_nothing(work: Work) -> None:
    for calls in range(1, await calls_of(work), 2 * STEP):
        story, disk = await until_crash(work, calls)
        for more in range(30):
            second = disk.crash(Random(f"{calls} {more % 3}"))
            second.stop_after(more)
            try:
                await reopened(second, story)
            except Crashed:
                await reopened(second.crash(Random(f"{calls} {more}")), story)
            else:
                break


# --- workloads by chance

names = st.sampled_from(["a", "b", "kept"])
actions = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), names, st.integers(1, 3), st.sampled_from([0, 90, 500, 900])),
        st.tuples(st.just("together"), names, st.integers(1, 3), st.integers(1, 3)),
        st.tuples(st.just("once"), names, st.integers(0, 5), st.integers(1, 2)),
        st.tuples(st.just("commit"), names, st.integers(0, 3), st.none()),
        st.tuples(st.just("checkpoint"), st.none(), st.none(), st.none()),
        st.tuples(st.just("recreate"), names, st.none(), st.none()),
        st.tuples(st.just("reopen"), st.none(), st.none(), st.none()),
    ),
    min_size=1,
    max_size=25,
)
Action = tuple[str, Any, Any, Any]


async def act(story: Story, disk: SimulatedFileSystem, action: Action) -> None:
    match action:
        case ("publish", name, count, size):
            await story.publish(name, count, size=size)
        case ("together", name, count, other):
            await story.publish_together((name, count), ("a", other), (name, 1))
        case ("once", name, sequence, _):
            await story.publish_once(name, "p", sequence)
        case ("commit", name, offset, _):
            topic = story.life.topic(name)
            assert topic is not None
            await story.commit(name, min(offset, topic.log.next_offset))
        case ("checkpoint", *_):
            await story.checkpoint()
        case ("recreate", name, *_):
            await story.delete(name)
            for key in [key for key in story.sequences if key[0] == name]:
                del story.sequences[key]
            await story.create(name, retention_count=3 if name == "kept" else None)
        case _:
            await story.close()
            await story.open(disk)


async def any_workload(actions: list[Action], crash_at: int, seed: int) -> None:
    """Three lives of one disk, each ended by a power cut or a kill at some point."""
    random = Random(seed)
    disk, story = SimulatedFileSystem(), Story()
    for _ in range(3):
        disk.stop_after(crash_at)
        try:
            life = await story.open(disk)
            for name in ("a", "b", "kept"):
                if life.topic(name) is None:
                    await story.create(name, retention_count=3 if name == "kept" else None)
            for action in actions:
                await act(story, disk, action)
        except Crashed:
            pass
        if random.random() < 0.3:
            disk.end_process()
        else:
            disk = disk.crash(random)
        life = await reopened(disk, story)
        story.take_over(life)
        disk = disk.crash(random)
        crash_at = random.randrange(150)


@pytest.mark.slow
@given(actions=actions, crash_at=st.integers(0, 150), seed=st.integers(0, 2**32))
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
async def test_any_workload_survives_any_end(
    actions: list[Action], crash_at: int, seed: int
) -> None:
    await any_workload(actions, crash_at, seed)


@pytest.mark.slow
@given(actions=actions, crash_at=st.integers(0, 150), seed=st.integers(0, 2**32))
@settings(max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck))
async def test_thousands_of_workloads_survive_any_end(
    actions: list[Action], crash_at: int, seed: int
) -> None:
    await any_workload(actions, crash_at, seed)


async def test_producers_are_remembered_over_restarts_within_the_limits_they_were_given() -> None:
    disk, clock = SimulatedFileSystem(), ManualClock()
    life = Life(disk)
    life.broker = durable_broker(disk, clock=clock, producer_seconds=60.0)
    await life.open()
    await life.run(life.broker.create_topic("orders", {}))
    await life.publish("orders", b"0", producer="a", sequence=1)
    await clock.advance(61)
    await life.publish("orders", b"1", producer="b", sequence=1)
    await clock.advance(1)
    await life.run(life.broker.host.checkpoint())
    await life.publish("orders", b"2", producer="c", sequence=1)

    again = Life(disk.crash("everything"))
    again.broker = durable_broker(again.disk, clock=clock, producer_seconds=60.0)
    await again.open()
    assert (await again.publish("orders", b"1", producer="b", sequence=1)).duplicate
    assert (await again.publish("orders", b"2", producer="c", sequence=1)).duplicate
    assert not (await again.publish("orders", b"0", producer="a", sequence=1)).duplicate


@pytest.mark.parametrize("how", ["purge", "delete"])
async def test_a_purge_or_a_deletion_forgets_the_producers(how: str) -> None:
    life = await Life(SimulatedFileSystem()).open()
    await life.run(life.broker.create_topic("orders", {}))
    for number in range(20):
        await life.publish("orders", b"x", producer=f"p{number}", sequence=1)
    assert life.broker.shard.state.remembered.bytes > 0
    if how == "purge":
        await life.run(life.broker.purge_topic("orders", None))
    else:
        await life.run(life.broker.delete_topic("orders"))

    assert life.broker.shard.state.remembered.bytes == 0


async def test_producers_in_a_manifest_of_an_earlier_version_are_taken_up() -> None:
    life = await Life(SimulatedFileSystem()).open()
    await life.run(life.broker.create_topic("orders", {}))
    await life.publish("orders", b"0", b"1", producer="a", sequence=5)
    await life.run(life.broker.close())
    manifest = read_manifest(life.disk)
    assert manifest is not None
    older = msgspec.structs.replace(
        manifest.topics[0], windows=b"", producers=[("a", [[[5, 2, 0]], [[5, 2]]])]
    )
    write_manifest(life.disk, msgspec.structs.replace(manifest, topics=[older]))

    again = await Life(life.disk).open()
    assert (await again.publish("orders", b"0", b"1", producer="a", sequence=5)).duplicate
