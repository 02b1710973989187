"""The term: a number that nobody who led before has used, kept before anything rests on it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from flintmq.broker_api import Joining
from flintmq.engine.commands import BeginEpoch, encode_command
from flintmq.errors import Corrupt, NotLeader, StorageFailed
from flintmq.fsync_policy import FsyncPolicy
from flintmq.storage.frames import FileSeed, Record, State
from flintmq.storage.journal import Journal
from flintmq.storage.journal_files import encode_header
from flintmq.testing import SimulatedFileSystem

from .stepping import JOURNAL_FILE_BYTES, Life, small_sizes


@pytest.fixture(autouse=True)
def sizes() -> Iterator[None]:
    with small_sizes():
        yield


def kept_states(disk: SimulatedFileSystem) -> dict[int, State]:
    """What a power cut would leave now."""
    left = disk.crash("nothing")
    return Journal.open(left, "journal").states()


async def token(life: Life, topic: str = "t") -> int:
    if life.topic(topic) is None:
        await life.run(life.broker.create_topic(topic, {}))
    await life.publish(topic, b"m")
    joining = life.broker.join_group(
        Joining(topic, "g", order=None, filter=None, start=None, holder="me", auto_create=False)
    )
    member = await life.run(joining)
    grant = await life.run(member.take(1, 30.0, 0.0))
    assert grant is not None
    number: int = grant.token
    await life.run(member.close())
    return number


async def test_every_start_and_everybody_who_begins_to_lead_has_a_term_of_its_own() -> None:
    disk = SimulatedFileSystem()
    terms = []
    for _ in range(3):
        life = await Life(disk).open()
        shard = life.broker.shard
        for _ in range(2):
            assert await life.run(shard.wait_term()) == shard.term
            assert kept_states(disk)[0].term == shard.term
            terms.append(await token(life) >> 40)
            assert terms[-1] == shard.term
            shard.give_up_lead()
            await life.run(shard.take_lead())
        disk = disk.crash("nothing")

    assert terms == sorted(set(terms))


async def test_entries_carry_the_term_they_were_proposed_under() -> None:
    life = await Life(SimulatedFileSystem()).open()
    await life.run(life.broker.create_topic("t", {}))
    first = life.broker.shard.proposer.applied
    life.broker.shard.give_up_lead()
    await life.run(life.broker.shard.take_lead())
    await life.publish("t", b"m")

    journal = Journal.open(life.disk.crash("nothing"), "journal")
    assert journal.term(0, first) == 1
    assert journal.term(0, first + 1) == 2


@pytest.mark.parametrize("policy", ["always", "interval", "never"])
async def test_a_group_is_joined_only_when_the_term_is_on_the_disk(policy: str) -> None:
    kinds = {"interval": FsyncPolicy("interval", 1000), "never": FsyncPolicy("never")}
    disk = SimulatedFileSystem()
    life = await Life(disk, kinds.get(policy, FsyncPolicy())).open()
    waiting = asyncio.ensure_future(life.broker.shard.wait_term())
    await asyncio.sleep(0)
    assert not waiting.done()
    assert kept_states(disk) == {}

    life.broker.host.step()
    assert await waiting == 1
    assert kept_states(disk) == {0: State(1)}


async def test_who_waits_for_a_term_hears_that_the_lead_or_the_disk_is_gone() -> None:
    life = await Life(SimulatedFileSystem()).open()
    waiting = asyncio.ensure_future(life.broker.shard.wait_term())
    await asyncio.sleep(0)
    life.broker.shard.give_up_lead()
    life.broker.host.step()
    with pytest.raises(NotLeader):
        await waiting

    await life.run(life.broker.shard.take_lead())
    waiting = asyncio.ensure_future(life.broker.shard.wait_term())
    await asyncio.sleep(0)
    life.disk.fail("sync")
    life.broker.host.step()
    with pytest.raises(StorageFailed):
        await waiting


async def test_a_directory_of_an_earlier_version_goes_on_above_its_epoch() -> None:
    disk = SimulatedFileSystem()
    journal = Journal.open(
        disk, "journal", file_bytes=JOURNAL_FILE_BYTES, first_file_bytes=JOURNAL_FILE_BYTES
    )
    journal.append([Record(0, 1, 1, tuple(encode_command(BeginEpoch(7))))])
    journal.abandon()
    path = "journal/journal-0000000000000001"
    salt = int.from_bytes(disk.contents(path)[32:40], "little")
    file = disk.open(path, writable=True)
    file.pwritev([encode_header(FileSeed(1, salt), 1, JOURNAL_FILE_BYTES, version=1)], 0)
    file.sync_all()
    file.close()
    before = disk.contents(path)

    life = await Life(disk).open()
    assert await token(life) >> 40 == 8
    assert disk.contents(path) == before, "a hard state never goes into a file of version 1"
    await life.run(life.broker.host.checkpoint())
    again = await Life(disk.crash("nothing")).open()
    assert await token(again) >> 40 == 9


async def test_a_term_outlives_the_journal_in_the_checkpoint() -> None:
    life = await Life(SimulatedFileSystem()).open()
    for _ in range(3):
        life.broker.shard.give_up_lead()
        await life.run(life.broker.shard.take_lead())
    copy = SimulatedFileSystem()
    await life.run(life.broker.host.back_up_to(copy))

    restored = await Life(copy).open()
    assert restored.broker.shard.term == 5


async def test_a_checkpoint_that_is_gone_is_noticed_where_the_journal_has_nothing_left() -> None:
    life = await Life(SimulatedFileSystem()).open()
    await life.run(life.broker.create_topic("t", {}))
    for _ in range(10):
        await life.publish("t", bytes(500))
    await life.run(life.broker.close())
    life = await Life(life.disk.crash("nothing")).open()
    await life.run(life.broker.shard.wait_term())
    await life.run(life.broker.close())
    disk = life.disk.crash("nothing")
    for name in ("manifest", "manifest.copy", *disk.list("segments")):
        path = name if name.startswith("manifest") else f"segments/{name}"
        if disk.exists(path):
            disk.remove(path)

    with pytest.raises(Corrupt, match=r"index \d+ was written|begins with index"):
        await Life(disk).open()
