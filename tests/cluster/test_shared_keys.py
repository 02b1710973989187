"""Keys of a cluster: made at any node, asked for by all; real processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import flintmq
from flintmq.access import TopicGrant
from flintmq.errors import NotAuthenticated
from flintmq.storage.key_file import KeyFile, make_key

from ..patience import until
from .processes import NodeProcess, founded, leader_of
from .test_recovering import flintmq_command

pytestmark = pytest.mark.slow

EVERYTHING = [TopicGrant.of(">", ["publish", "consume", "administer"])]


async def lets_in(node: NodeProcess, key: str | None) -> bool:
    """By itself: it is not sent on to another node before it is asked for a key."""
    try:
        async with flintmq.connect(node.url, api_key=key, timeout=10) as mq:
            await mq.topics()
            return True
    except NotAuthenticated:
        return False


async def made(*arguments: str) -> str:
    code, out, said = await flintmq_command("key", *arguments, "--output", "json")
    assert code == 0, said
    found: str = json.loads(out).get("key", "")
    return found


async def open_to(nodes: dict[str, NodeProcess], key: str) -> None:
    """Who follows hears of a key a moment later."""
    for node in nodes.values():
        await until(lambda node=node: lets_in(node, key), f"it is good at {node.name}")  # type: ignore[misc]


async def closed_to(nodes: dict[str, NodeProcess], key: str | None) -> None:
    for node in nodes.values():
        await until(lambda node=node: refuses(node, key), f"{node.name} refuses")  # type: ignore[misc]


async def refuses(node: NodeProcess, key: str | None) -> bool:
    return not await lets_in(node, key)


async def test_a_key_that_is_made_at_one_node_is_good_and_revoked_at_all(tmp_path: Path) -> None:
    async with founded(tmp_path, "a", "b", "c") as nodes:
        leader = await leader_of(nodes)
        at = next(node for node in nodes.values() if node is not leader)
        grant = ("--grant", ">:publish,consume,administer")
        root = await made("add", "root", *grant, "--server", at.url)
        key_file = tmp_path / "root.key"
        key_file.write_text(root)
        key_file.chmod(0o600)
        as_root = ("--server", at.url, "--api-key-file", str(key_file))
        await closed_to(nodes, None)
        for node in nodes.values():
            assert await lets_in(node, root)

        other = await made("add", "other", "--grant", "orders.>:consume", *as_root)
        await open_to(nodes, other)
        code, _, said = await flintmq_command("key", "add", "other", *grant, *as_root)
        assert code != 0
        assert "has a key 'other' already" in said
        with_other = tmp_path / "other.key"
        with_other.write_text(other)
        code, _, said = await flintmq_command(
            "key", "ls", "--server", at.url, "--api-key-file", str(with_other)
        )
        assert code != 0, "who may not administer everything does not see the keys"

        await made("rm", "other", "--yes", *as_root)
        await closed_to(nodes, other)

        # One that joins lets nobody in without a key, from the beginning on.
        key = tmp_path / "cluster.key"
        late = nodes["d"] = NodeProcess(tmp_path, "d", key)
        await late.start("--join", nodes["a"].peer)
        await late.ready()
        assert not await lets_in(late, None)
        await until(lambda: lets_in(late, root), "it has the keys")


async def test_keys_of_a_file_are_copied_into_the_cluster_and_stay_as_they_are(
    tmp_path: Path,
) -> None:
    file = KeyFile(tmp_path / "keys.json")
    texts = []
    for name, grants in (("few", [TopicGrant.of("orders.>", ["consume"])]), ("root", EVERYTHING)):
        key, text = make_key(name, grants, now_ms=1, expires_at_ms=None)
        file.add(key)
        texts.append(text)
    key_file = tmp_path / "root.key"
    key_file.write_text(texts[1])
    async with founded(tmp_path, "a", "b", "c") as nodes:
        path = str(tmp_path / "keys.json")
        where = ("--server", nodes["a"].url, "--api-key-file", str(key_file), "--output", "json")
        code, out, said = await flintmq_command("key", "copy", path, *where)
        assert code == 0, said
        assert json.loads(out) == {"copied": ["root", "few"], "left_out": []}
        for text in texts:
            await open_to(nodes, text)
        for node in nodes.values():
            assert not await lets_in(node, None)

        await made("rm", "few", "--yes", *where[:4])
        code, out, said = await flintmq_command("key", "copy", path, *where)
        assert json.loads(out)["copied"] == [], "what was revoked stays revoked"
        await closed_to(nodes, texts[0])
