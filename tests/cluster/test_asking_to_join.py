"""A node that joins asks one node after the other until it is told something."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from flintmq.cluster import joining
from flintmq.cluster.identity import NodeFile, NodeRecord, NodeStanding
from flintmq.cluster.joining import STARTING, Admitted, JoinRefused, join, wait_removed
from flintmq.errors import Disconnected
from flintmq.storage.filesystem import LocalFileSystem

from .nodes import entry_of

OURS, OTHER = ("127.0.0.1", 1), ("127.0.0.1", 2)


class Answering:
    """Lines to nodes that have one answer each."""

    def __init__(self, answers: dict[tuple[str, int], bytes]) -> None:
        self._answers = answers

    async def ask(self, place: tuple[str, int], *_: object) -> bytes:
        return self._answers[place]


async def test_a_node_that_is_among_those_it_asks_goes_on_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "AGAIN_SECONDS", (0.0, 0.0))
    admitted = msgspec.msgpack.encode(Admitted(bytes(16), 4, [entry_of(1), entry_of(4)], 2))
    peers: Any = Answering({OURS: STARTING, OTHER: admitted})
    file = NodeFile(LocalFileSystem(tmp_path))
    try:
        record = await join(file, peers, "d", "127.0.0.1:1", [OURS, OTHER])
    finally:
        file.close()

    assert record.node == 4


async def test_a_member_that_asks_whether_it_belongs_does_not_say_that_it_waits_for_a_cluster(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(joining, "AGAIN_SECONDS", (0.0, 0.0))
    refused = msgspec.msgpack.encode(JoinRefused("removed", is_removed=True))

    unheard = iter(range(3))

    async def ask(*_: object) -> bytes:
        if next(unheard, None) is not None:
            raise Disconnected("127.0.0.1:2", "Connection refused")
        return refused

    state = SimpleNamespace(is_connected=False, place=SimpleNamespace(address=OTHER, name="c"))
    peers: Any = SimpleNamespace(ask=ask, states={3: state})
    record = NodeRecord(
        standing=NodeStanding.MEMBER,
        cluster=bytes(16),
        name="a",
        incarnation=7,
        members=(),
        asker=0,
        id=1,
    )

    answer = await wait_removed(record, peers, [])

    assert answer.is_removed
    assert caplog.records == []
