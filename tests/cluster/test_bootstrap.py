"""Founding a cluster over real lines, with real node files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from flintmq.cluster.bootstrap import ClusterFounder, address_of, belonging_of, entries_of
from flintmq.cluster.catalog import ClusterCatalog
from flintmq.cluster.founding import Adopt, Refused, decode_answer, encode_founding
from flintmq.cluster.identity import Members, NodeFile, NodeRecord, NodeStanding, members_of
from flintmq.cluster.joining import places_in
from flintmq.cluster.peer_frames import NO_CLUSTER
from flintmq.cluster.peers import Peers
from flintmq.errors import InvalidRequest
from flintmq.storage.filesystem import LocalFileSystem

from ..patience import free_port, until
from .wired import KEY, HeardNode


class BootedNode:
    def __init__(self, directory: Path, name: str, members: Members, key: bytes = KEY) -> None:
        directory.mkdir(exist_ok=True)
        self.file = NodeFile(LocalFileSystem(directory))
        self.founder = ClusterFounder(self.file, name)
        self.peers = Peers(key=key, found=self.founder.answer)
        self.members = members
        self.heard = HeardNode()

    async def start(self, *, is_told: bool = True) -> None:
        mine = next(one for one in self.members if one.name == self.founder.node.name)
        if is_told:
            self.founder.want(self.members)
        await self.peers.listen(*address_of(mine))

    async def found(self) -> NodeRecord:
        record = await self.founder.wait_founded(self.peers)
        self.peers.join(belonging_of(record), places_in(ClusterCatalog(entries_of(record))))
        self.peers.start(self.heard)
        return record

    async def close(self) -> None:
        await self.peers.close()
        self.file.close()


def three() -> Members:
    """In the order of their names: a decides."""
    addresses = sorted(f"127.0.0.1:{free_port()}" for _ in "abc")
    return members_of(list(zip("abc", addresses, strict=True)))


@asynccontextmanager
async def booted(
    tmp_path: Path, members: Members, names: str = "abc"
) -> AsyncIterator[list[BootedNode]]:
    nodes = [BootedNode(tmp_path / name, name, members) for name in names]
    try:
        yield nodes
    finally:
        for node in nodes:  # who dials first: asyncio forgets whom it has just accepted
            await node.close()


async def test_three_blank_nodes_found_one_cluster_and_connect(tmp_path: Path) -> None:
    async with booted(tmp_path, three()) as nodes:
        for node in nodes:
            await node.start()
        records = await asyncio.gather(*(node.found() for node in nodes))

        assert len({record.cluster for record in records}) == 1
        assert sorted(record.node for record in records) == [1, 2, 3]
        await until(lambda: all(len(node.heard.lives) == 2 for node in nodes), "connected")


async def test_one_node_that_is_told_is_enough(tmp_path: Path) -> None:
    members = three()
    async with booted(tmp_path, members) as nodes:
        for node in nodes:
            await node.start(is_told=node is nodes[2])
        records = await asyncio.gather(*(node.found() for node in nodes))

        assert len({record.cluster for record in records}) == 1


async def test_who_comes_late_is_waited_for_and_a_restart_changes_nothing(tmp_path: Path) -> None:
    members = three()
    async with booted(tmp_path, members, "ab") as early:
        for node in early:
            await node.start()
        waiting = [asyncio.ensure_future(node.founder.wait_founded(node.peers)) for node in early]
        await until(lambda: early[1].file.record is not None, "b is adopted")
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert not any(node.founder.node.is_founder() for node in early)

    async with booted(tmp_path, members) as nodes:
        for node in nodes:
            await node.start()
        first = await asyncio.gather(*(node.found() for node in nodes))
    async with booted(tmp_path, members) as nodes:
        for node in nodes:
            await node.start()
        again = await asyncio.gather(*(node.found() for node in nodes))

    assert first == again


@pytest.mark.slow
async def test_who_was_away_when_the_cluster_was_founded_is_told_later(tmp_path: Path) -> None:
    members = three()
    async with booted(tmp_path, members) as nodes:
        first, *others = nodes
        for node in nodes:
            await node.start()

        # The others have confirmed and hear nothing of FOUND: the decider crashed behind its sync.
        def deaf(other: BootedNode) -> None:
            other.peers._found = lambda data: (
                b"" if b"found" in data else other.founder.answer(data)
            )

        for other in others:
            deaf(other)
        record = await first.found()
        assert not any(other.founder.node.is_founder() for other in others)
        for other in others:
            other.peers._found = other.founder.answer
        telling = asyncio.ensure_future(first.founder.keep_telling(first.peers))
        records = await asyncio.gather(*(other.found() for other in others))

        assert {one.cluster for one in records} == {record.cluster}
        await telling


async def test_different_lists_end_with_an_error_that_names_the_remedy(tmp_path: Path) -> None:
    members = three()
    others = members_of([(one.name, one.address) for one in members[:2]])
    async with booted(tmp_path, members, "ab") as nodes:
        first, second = nodes
        second.members = others
        await first.start()
        await second.start()
        with pytest.raises(InvalidRequest, match="the same --initial-cluster"):
            await first.founder.wait_founded(first.peers)


async def test_a_node_must_be_in_its_own_list(tmp_path: Path) -> None:
    members = three()
    file = NodeFile(LocalFileSystem(tmp_path))
    with pytest.raises(InvalidRequest, match="no node 'z'"):
        ClusterFounder(file, "z").want(members)
    file.close()


async def test_a_node_that_has_begun_to_join_is_not_asked_into_another_cluster(
    tmp_path: Path,
) -> None:
    members = three()
    async with booted(tmp_path, members, "b") as (node,):
        joining = NodeRecord(
            standing=NodeStanding.JOINING,
            cluster=NO_CLUSTER,
            name="b",
            incarnation=5,
            members=(),
            asker=0,
        )
        node.file.write(joining)

        answer = decode_answer(node.founder.answer(encode_founding(Adopt(b"c", members, 3))))

        assert isinstance(answer, Refused)
        assert node.file.record == joining
