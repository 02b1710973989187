"""Looking at, copying and mending a directory that holds several groups over one journal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from flintmq.cli.root import run
from flintmq.daemon.doctor.data_directory import look_at_directory
from flintmq.storage.backup import copy_stopped
from flintmq.storage.filesystem import LocalFileSystem
from flintmq.storage.inspect import list_directory, messages, verify
from flintmq.storage.repair import carry_out, plan_repair
from flintmq.testing import ManualClock, SimulatedFileSystem

from .stepping import small_sizes
from .test_shards import GROUPS, Node


@pytest.fixture(autouse=True, scope="module")
def sizes() -> Iterator[None]:
    with small_sizes():
        yield


async def closed(disk: SimulatedFileSystem | LocalFileSystem) -> None:
    """A directory with a topic in each group, and a message in each."""
    node = await Node(disk, ManualClock()).open()
    for group in GROUPS:
        await node.publish(group, b"of %d" % group, f"t{group}")
    await node.run(node.host.close())


async def with_a_tail(disk: SimulatedFileSystem) -> SimulatedFileSystem:
    """The same, with what came after the checkpoint in the journal."""
    await closed(disk)
    node = await Node(disk, ManualClock()).open()
    for group in GROUPS:
        await node.publish(group, b"late %d" % group, f"t{group}")
    return disk.crash("nothing")


async def values(disk: SimulatedFileSystem) -> list[list[bytes]]:
    node = await Node(disk.crash("nothing"), ManualClock()).open()
    found = [node.values(group, f"t{group}") for group in GROUPS]
    node.host._journal.abandon()
    return found


WHOLE = [[b"of %d" % group, b"late %d" % group] for group in GROUPS]


async def test_a_listing_has_the_topics_and_the_terms_of_every_group() -> None:
    disk = await with_a_tail(SimulatedFileSystem())
    listing = list_directory(disk)

    assert [(topic.name, topic.group) for topic in listing.topics] == [
        ("t0", 0),
        ("t1", 1),
        ("t2", 2),
    ]
    assert [(group.group, group.term) for group in listing.groups] == [(0, 2), (1, 2), (2, 2)]
    assert {group.records_behind_checkpoint for group in listing.groups} == {1}
    assert [segment.file.rpartition("/")[0] for segment in listing.segments] == [
        "segments",
        "groups/1/segments",
        "groups/2/segments",
    ]
    assert all(segment.is_in_use for segment in listing.segments)
    assert listing.problems == []
    assert [batch.value(row) for batch, row, _ in messages(disk, "t2")] == [b"of 2"]


async def test_a_copy_of_a_stopped_directory_has_every_group() -> None:
    disk = await with_a_tail(SimulatedFileSystem())
    copy = SimulatedFileSystem()
    copy_stopped(disk, copy, lambda progress: None, link=False)

    assert verify(copy) == []
    assert await values(copy) == WHOLE


async def test_verifying_names_what_is_wrong_with_which_group() -> None:
    disk = await with_a_tail(SimulatedFileSystem())
    assert [problem for problem in verify(disk) if problem.is_damage] == []

    hurt = disk.crash("nothing")
    (name,) = hurt.list("groups/1/segments")
    hurt.flip(f"groups/1/segments/{name}", 40)
    hurt.flip("groups/2/manifest", 40)
    found = {problem.file for problem in verify(hurt) if problem.is_damage}
    assert f"groups/1/segments/{name}" in found
    assert "groups/2/manifest" in found

    lost = disk.crash("nothing")
    for name in lost.list("groups/1"):
        if name != "segments":
            lost.remove(f"groups/1/{name}")
    (segment,) = lost.list("groups/1/segments")
    lost.remove(f"groups/1/segments/{segment}")
    texts = [str(problem) for problem in verify(lost)]
    assert any("of group 1; the checkpoint is 0" in text for text in texts), texts
    lost.remove_directory("groups/1/segments")
    lost.remove_directory("groups/1")
    texts = [str(problem) for problem in verify(lost)]
    assert "groups/1: is missing, but the journal has records of that group" in texts
    assert "the files of group 1 are missing" in plan_repair(lost, cut_journal=False).refused[0]


async def test_a_manifest_of_a_group_comes_back_from_its_copy() -> None:
    disk = await with_a_tail(SimulatedFileSystem())
    disk.flip("groups/2/manifest", 40)
    plan = plan_repair(disk, cut_journal=False)
    assert len(plan.steps) == 1
    assert "the manifest of group 2" in plan.steps[0]

    aside, _ = carry_out(disk, plan)
    assert {"manifest", "manifest.copy"} <= set(disk.list(f"{aside}/groups/2"))
    assert await values(disk) == WHOLE


async def test_a_group_is_made_of_its_segments_and_the_others_keep_their_journal() -> None:
    disk = await with_a_tail(SimulatedFileSystem())
    for name in ("manifest", "manifest.copy"):
        disk.flip(f"groups/1/{name}", 40)
    carry_out(disk, plan_repair(disk, cut_journal=False))

    node = await Node(disk.crash("nothing"), ManualClock()).open()
    assert node.values(0, "t0") == WHOLE[0]
    assert node.values(2, "t2") == WHOLE[2]
    (name,) = node.brokers[1].shard.topics
    assert name.startswith("recovered-")
    assert node.values(1, name) == [b"of 1"]
    assert node.brokers[1].shard.term == 3
    await node.publish(1, b"on", "new")


async def test_a_damaged_segment_of_a_group_is_repaired_around() -> None:
    disk = SimulatedFileSystem()
    await closed(disk)
    (name,) = disk.list("groups/1/segments")
    path = f"groups/1/segments/{name}"
    disk.flip(path, disk.contents(path).index(b"of 1"))
    aside, done = carry_out(disk, plan_repair(disk, cut_journal=False))

    assert any("topic 't1' begins at 1; 1 messages are lost" in step for step in done)
    assert disk.exists(f"{aside}/groups/1/{name}")
    assert await values(disk) == [[b"of 0"], [], [b"of 2"]]


@pytest.mark.slow
def test_the_commands_and_the_doctor_know_groups(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "data"
    asyncio.run(closed(LocalFileSystem(directory)))

    def flint(*arguments: object) -> str:
        capfd.readouterr()
        assert run([str(argument) for argument in arguments]) == 0
        return capfd.readouterr().out

    listing = json.loads(flint("log", "ls", directory, "--output", "json"))
    assert [(g["group"], g["term"]) for g in listing["groups"]] == [(0, "1"), (1, "1"), (2, "1")]
    assert "GROUP" in flint("log", "ls", directory)
    assert json.loads(flint("log", "verify", directory, "--output", "json"))["ok"]
    assert "of 2" in flint("log", "dump", directory, "--topic", "t2")
    assert "raft_group=1" in flint("log", "dump", directory, "--journal")
    flint("backup", directory, tmp_path / "copy")
    flint("restore", tmp_path / "copy", tmp_path / "again")
    assert "of 1" in flint("log", "dump", tmp_path / "again", "--topic", "t1")
    (finding,) = [f for f in look_at_directory(directory) if f.name == "data directory"]
    assert "3 groups of a cluster" in finding.what
    assert "3 topics" in finding.what
