"""Settings that a cluster keeps for all of its nodes; real processes."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

import flintmq
from flintmq.errors import TopicNotFound

from ..patience import until
from .processes import founded, leader_of
from .test_recovering import flintmq_command

pytestmark = pytest.mark.slow


async def told(*words: str) -> dict[str, Any]:
    code, out, said = await flintmq_command("cluster", *words, "--output", "json")
    assert code == 0, said
    found: dict[str, Any] = json.loads(out)
    return found


async def test_a_setting_of_the_cluster_is_in_effect_whoever_leads_until_it_is_unset(
    tmp_path: Path,
) -> None:
    async with founded(tmp_path, "a", "b", "c") as nodes:
        leader = await leader_of(nodes)
        at = next(node for node in nodes.values() if node is not leader)
        server = ("--server", at.url)
        await told("set", "auto_create", "false", *server)
        await told("set", "topic_defaults", "max_deliveries=7", *server)
        code, _, said = await flintmq_command("cluster", "set", "auto_create", "maybe", *server)
        assert code != 0
        assert "auto_create" in said

        assert (await told("settings", *server))["settings"] == {
            "auto_create": "false",
            "topic_defaults": "max_deliveries=7",
        }
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{at.http}/api/v1") as http:
            answer = await http.put("/cluster/settings/staged_seconds", json={"value": "90"})
            assert answer.json()["settings"]["staged_seconds"] == "90"
            answer = await http.put("/cluster/settings/staged_seconds", json={"value": "soon"})
            assert answer.status_code == 400
            assert "staged_seconds" in answer.json()["error"]["message"]
            assert (await http.delete("/cluster/settings/staged_seconds")).status_code == 200
            kept = (await http.get("/cluster/settings")).json()
            assert kept["settings"] == {
                "auto_create": "false",
                "topic_defaults": "max_deliveries=7",
            }
        assert leader.process is not None
        os.kill(leader.process.pid, signal.SIGHUP)  # what is read again is its own configuration
        await leader.kill()
        other = await leader_of({name: node for name, node in nodes.items() if node is not leader})
        async with flintmq.connect(other.url) as mq:
            with pytest.raises(TopicNotFound):
                await mq.publish("nobody.made.it", 1)
            info = await mq.create_topic("orders")
            assert info.options.max_deliveries == 7

            await told("unset", "auto_create", *server)

            async def is_made() -> bool:
                try:
                    await mq.publish("nobody.made.it", 1)
                except TopicNotFound:
                    return False
                return True

            await until(is_made, "topics are made again")


async def test_a_broker_alone_keeps_neither_settings_nor_keys_for_others() -> None:
    async with flintmq.connect("memory://") as mq:
        with pytest.raises(flintmq.FlintError, match="not a node of a cluster"):
            await mq._broker.define("setting", "", "auto_create", b"false")
        with pytest.raises(flintmq.FlintError, match="not a node of a cluster"):
            await mq._broker.define("api-key", "", "4f1c22d09ab37e55", b"{}")
