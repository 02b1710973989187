"""A disk that loses bits, under a real broker: one topic's range is lost, and nothing else."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

import flintmq
from tests.patience import until
from tests.servers.http.promtool import read_page
from tests.servers.http.running import Line

from .served import Served

pytestmark = pytest.mark.slow

ROWS = 100


def values(name: str) -> list[bytes]:
    return [b"%s %d" % (name.encode(), row) for row in range(ROWS)]


def fill(directory: Path) -> None:
    """Three segments of a topic, each with a hundred messages, and a second topic."""
    for name in ("first", "second", "third"):
        with flintmq.connect_sync(f"file://{directory}") as mq:
            if name == "first":
                mq.create_topic("orders", retention_age=3600)
            mq.publish_batch("orders", values(name), ttl=1800)
    with flintmq.connect_sync(f"file://{directory}") as mq:
        mq.publish_batch("others", values("other"))


def flip(directory: Path, text: bytes) -> Path:
    for path in sorted((directory / "segments").iterdir()):
        content = bytearray(path.read_bytes())
        at = content.find(text)
        if at >= 0:
            content[at] ^= 1
            with path.open("r+b") as file:
                file.seek(at)
                file.write(content[at : at + 1])
            return path
    raise AssertionError(f"{text!r} is in no segment")


async def asked(broker: Served, page: str) -> bytes:
    host, _, port = broker.http.removeprefix("http://").rpartition(":")
    line = Line(*await asyncio.open_connection(host, int(port)))
    try:
        answer = await line.ask(page)
        assert answer.status == 200
        return answer.body
    finally:
        line.writer.close()


async def read_all(mq: flintmq.Client, topic: str) -> tuple[list[bytes], list[flintmq.Corrupt]]:
    """What a reader gets, and what it hears on its way."""
    found: list[bytes] = []
    errors: list[flintmq.Corrupt] = []
    async with mq.reader(topic) as reader:
        end = (await mq.topic_stats(topic)).next_offset
        while await reader.position() < end:
            try:
                found += (await reader.read_batch(1000, timeout=60)).values
            except flintmq.Corrupt as error:
                errors.append(error)
                await reader.seek(error.next_offset or 0)
    return found, errors


async def doctor(directory: Path) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "flintmq.cli", "doctor"),
        *("--data-dir", str(directory), "--output", "json"),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    return {finding["name"]: finding for finding in json.loads(out)["findings"]}


async def test_a_flipped_bit_costs_its_batch_and_everything_else_goes_on(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    fill(directory)
    flip(directory, b"second 40")
    options = ("--http", "127.0.0.1:0", "--log-format", "json")
    broker = await Served(directory, *options).start()
    try:
        # Nobody has read it: the scrub finds it.
        async def is_known() -> bool:
            return b"damaged_messages" in await asked(broker, "/ready")

        await until(is_known, "the scrub does not find it")
        ready = json.loads(await asked(broker, "/ready"))
        assert ready == {"status": "ready", "damaged_messages": ROWS}
        page = read_page((await asked(broker, "/metrics")).decode())
        assert set(page["flintmq_damaged_messages"].samples.values()) == {ROWS}
        assert set(page["flintmq_topic_damaged_messages"].samples.values()) == {ROWS}
        await until((directory / "damage.json").exists, "nothing is noted for the doctor")
        assert (await doctor(directory))["damaged messages"]["verdict"] == "bad"

        async with flintmq.connect(broker.url) as mq:
            assert (await mq.topic_stats("orders")).damaged_ranges == [(ROWS, 2 * ROWS)]
            found, (error,) = await read_all(mq, "orders")
            assert found == values("first") + values("third")
            assert (error.first_offset, error.next_offset) == (ROWS, 2 * ROWS)
            assert await read_all(mq, "others") == (values("other"), [])
            await mq.publish("orders", b"on")
            await mq.publish("others", b"on")
            got: list[bytes] = []
            while len(got) < 2 * ROWS + 1:
                messages = await mq.poll("orders", "workers", start="earliest", wait=60)
                got += [message.value for message in messages]
                await mq.ack(messages)
            assert got == [*values("first"), *values("third"), b"on"]
            assert (await mq.group_stats("orders", "workers")).drops == {"damaged": ROWS}
        assert await broker.end(signal.SIGTERM) == 0
        said = await broker.said()
        assert "messages_damaged" in said
        assert "group_passed_damage" in said

        # It is found again, and the start is not refused.
        broker = await Served(directory, *options).start()
        await until(is_known, "the scrub does not find it again")
        async with flintmq.connect(broker.url) as mq:
            found, _ = await read_all(mq, "orders")
            assert found == [*values("first"), *values("third"), b"on"]
            await mq.purge_topic("orders", before=2 * ROWS)
            assert not await is_known()
    finally:
        await broker.leave()


async def test_a_bit_that_flips_under_a_running_broker_is_heard_of_by_who_reads_it(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "data"
    fill(directory)
    broker = await Served(directory, "--http", "127.0.0.1:0", "--scrub-bytes", "0").start()
    try:
        async with flintmq.connect(broker.url) as mq:
            flip(directory, b"first 40")
            found, (error,) = await read_all(mq, "orders")
            assert found == values("second") + values("third")
            assert error.first_offset == 0
            assert await read_all(mq, "others") == (values("other"), [])
            await mq.publish("orders", b"on")
        assert b"damaged_messages" in await asked(broker, "/ready")
        assert await broker.end(signal.SIGTERM) == 0
    finally:
        await broker.leave()
