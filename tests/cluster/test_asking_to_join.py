"""A node that joins asks one node after the other until it is told something."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from flintmq.cluster import joining
from flintmq.cluster.identity import NodeFile
from flintmq.cluster.joining import STARTING, Admitted, join
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
