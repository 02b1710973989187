"""Webhooks of a real broker: its command line, and `kill -9`."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import flintmq

from .kills import run, start, three_nodes
from .targets import answer, target

pytestmark = pytest.mark.slow


async def test_the_command_line_adds_lists_tests_pauses_and_removes(tmp_path: Path) -> None:
    process, url = await start(tmp_path / "data", 0)

    async def flint(*words: str) -> tuple[int, str]:
        running = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "flintmq.cli", "webhook", *words, "--server", url),
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await running.communicate()
        return running.returncode or 0, out.decode()

    async def told(*words: str) -> Any:
        return json.loads((await flint(*words, "--output", "json"))[1])

    try:
        async with flintmq.connect(url) as mq, target() as there:
            await mq.create_topic("orders")
            code, said = await flint("add", "orders", "crm", there.url, "--header", "x-a: 1")
            assert code == 0
            assert "Secret: whsec_" in said
            await mq.publish("orders", b"x")
            [got] = await there.wait_for(1)
            assert got.headers["x-a"] == "1"
            while (await told("ls"))[0]["delivered"] != 1:
                pass
            [one] = await told("ls", "orders")
            assert (one["topic"], one["group"], one["condition"]) == ("orders", "crm", "delivering")
            shown = (await flint("show", "orders", "crm"))[1]
            assert "whsec_" not in shown
            assert re.search(r"^last delivery +20\d\d-\d\d-\d\d ", shown, re.MULTILINE)

            code, said = await flint("test", "orders", "crm")
            assert code == 0
            assert said.startswith("Accepted with HTTP 204")
            there.answering = lambda got: answer(400, b"who are you?")
            code, said = await flint("test", "orders", "crm")
            assert (code, said) == (1, "Not accepted: HTTP 400: who are you?\n")

            assert (await flint("pause", "orders", "crm"))[0] == 0
            assert (await told("ls"))[0]["condition"] == "paused"
            assert (await flint("resume", "orders", "crm"))[0] == 0
            assert (await flint("rm", "orders", "crm", "--yes"))[0] == 0
            assert await told("ls") == []
    finally:
        process.terminate()
        assert await process.wait() == 0


async def test_nothing_is_lost_and_keys_stay_in_order_when_the_broker_is_killed() -> None:
    counts = await run(2, seed=3)
    assert counts["acknowledged"] > 0
    assert (counts["lost"], counts["out of order"]) == (0, 0), counts


async def test_webhooks_move_with_the_leader_of_a_cluster() -> None:
    counts = await run(1, seed=5, served=three_nodes)
    assert counts["acknowledged"] > 0
    assert (counts["lost"], counts["out of order"]) == (0, 0), counts
