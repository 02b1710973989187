"""What a client hears that has named the members of a cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flintmq.cluster.bootstrap import ClusterFounder
from flintmq.cluster.identity import NodeFile, NodeRecord, NodeStanding, members_of
from flintmq.daemon.node_view import NodeView
from flintmq.errors import InvalidRequest
from flintmq.storage.filesystem import LocalFileSystem

NAMES = [("a", "127.0.0.1:1"), ("b", "127.0.0.1:2"), ("c", "127.0.0.1:3")]


class LeaderElsewhere:
    """A node whose cluster gets its first leader when it is told to."""

    def __init__(self) -> None:
        self._told: Any = None

    def leader(self) -> int:
        return 1

    def on_leader_changed(self, callback: Any) -> None:
        self._told = callback

    def elects(self) -> None:
        self._told(1, 1)


async def test_who_named_other_members_than_the_cluster_has_is_refused_when_it_forms(
    tmp_path: Path,
) -> None:
    file = NodeFile(LocalFileSystem(tmp_path))
    names: Any = SimpleNamespace(name_of=lambda node: "a")
    view = NodeView(ClusterFounder(file, "c", is_driven=True), names)
    right = asyncio.ensure_future(view.found(NAMES, 60))
    wrong = asyncio.ensure_future(view.found(NAMES[1:], 60))
    await asyncio.sleep(0)

    view.record = NodeRecord(
        standing=NodeStanding.FOUNDER,
        cluster=b"id",
        name="c",
        incarnation=1,
        members=members_of(NAMES),
        asker=1,
    )
    node: Any = LeaderElsewhere()
    view.serve(node)
    node.elects()

    await right
    with pytest.raises(InvalidRequest, match="this is c of a cluster of a, b, c already"):
        await wrong
    file.close()
