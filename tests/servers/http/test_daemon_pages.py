"""The daemon's HTTP pages tell what it is doing, from before recovery until the end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import flintmq
from flintmq.config.table import Config
from flintmq.daemon.process import Daemon
from flintmq.engine import host
from flintmq.errors import Disconnected, StorageFailed
from tests.power_cut import copy_as_cut

from .promtool import read_page
from .running import Answer, Line


async def asked(daemon: Daemon, path: str) -> Answer:
    assert daemon.http_address is not None
    reader, writer = await asyncio.open_connection(*daemon.http_address)
    try:
        return await Line(reader, writer).ask(path)
    finally:
        writer.close()
        await writer.wait_closed()


def daemon_at(directory: Path) -> Daemon:
    return Daemon(
        Config(
            data_dir=directory,
            listen=("127.0.0.1", 0),
            http=("127.0.0.1", 0),
            drain_seconds=1,
        )
    )


def held(whole: Any) -> tuple[Any, asyncio.Event, asyncio.Event]:
    """A coroutine function that says when it is called, and goes on when it is told to."""
    called, go_on = asyncio.Event(), asyncio.Event()

    async def hold(*arguments: Any, **keywords: Any) -> None:
        called.set()
        await go_on.wait()
        await whole(*arguments, **keywords)

    return hold, called, go_on


async def test_from_recovering_to_ready_to_stopping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = daemon_at(tmp_path)
    opening, opened, open_it = held(daemon._broker.open)
    draining, drained, drain_it = held(daemon._server.drain)
    monkeypatch.setattr(daemon._broker, "open", opening)
    monkeypatch.setattr(daemon._server, "drain", draining)
    ready: asyncio.Future[tuple[str, int]] = asyncio.get_running_loop().create_future()
    running = asyncio.ensure_future(daemon.run(ready.set_result))

    await opened.wait()
    for path in ("/health", "/healthz"):
        assert (await asked(daemon, path)).status == 200
    for path in ("/ready", "/readyz"):
        answer = await asked(daemon, path)
        assert (answer.status, answer.json["reason"]) == (503, "recovering")
    for path in ("/metrics", "/api/v1/topics"):
        answer = await asked(daemon, path)
        assert (answer.status, answer.kind) == (503, "NotReady")

    open_it.set()
    address = await ready
    for path in ("/ready", "/readyz"):
        assert (await asked(daemon, path)).status == 200
    async with flintmq.connect("flint://{}:{}".format(*address)) as mq:
        await mq.publish("orders", b"x")
    page = read_page((await asked(daemon, "/metrics")).body.decode())
    assert page["flintmq_connections_accepted_total"].samples[
        "flintmq_connections_accepted_total", (("protocol", "native"),)
    ]
    assert (await asked(daemon, "/api/v1/topics")).json["topics"][0]["name"] == "orders"

    daemon.stop()
    await drained.wait()
    answer = await asked(daemon, "/ready")
    assert (answer.status, answer.json["reason"]) == (503, "stopping")
    assert (await asked(daemon, "/health")).status == 200
    drain_it.set()
    await running
    with pytest.raises(ConnectionError):
        await asked(daemon, "/health")


async def test_a_disk_that_failed_is_told_until_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = daemon_at(tmp_path)
    draining, drained, drain_it = held(daemon._server.drain)
    monkeypatch.setattr(daemon._server, "drain", draining)
    ready: asyncio.Future[tuple[str, int]] = asyncio.get_running_loop().create_future()
    running = asyncio.ensure_future(daemon.run(ready.set_result))
    await ready

    daemon._broker_failed(StorageFailed("sync", "the journal", "it broke"))

    await drained.wait()
    assert (await asked(daemon, "/health")).status == 503
    assert (await asked(daemon, "/ready")).json["reason"] == "the disk has failed"
    drain_it.set()
    with pytest.raises(StorageFailed):
        await running


async def test_a_port_that_is_taken_ends_the_start_before_anything_is_opened(
    tmp_path: Path,
) -> None:
    first = daemon_at(tmp_path / "first")
    ready: asyncio.Future[tuple[str, int]] = asyncio.get_running_loop().create_future()
    running = asyncio.ensure_future(first.run(ready.set_result))
    await ready
    assert first.http_address is not None
    second = Daemon(
        Config(data_dir=tmp_path / "second", listen=("127.0.0.1", 0), http=first.http_address)
    )

    with pytest.raises(Disconnected, match="cannot listen for HTTP"):
        await second.run(lambda _: None)

    first.stop()
    await running


async def test_recovery_steps_aside_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with flintmq.connect(f"file://{tmp_path}/data") as mq:
        await mq.create_topic("short", ttl=0.001)
        for number in range(50):
            await mq.publish("orders", str(number))
            await mq.publish("short", b"gone", delay=0.001)
        copy_as_cut(tmp_path / "data", tmp_path / "cut")
    monkeypatch.setattr(host, "RECOVERY_STEP_SECONDS", 0.0)
    turns = 0

    async def tick() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    ticking = asyncio.ensure_future(tick())
    async with flintmq.connect(f"file://{tmp_path}/cut") as mq:
        assert turns > 100
        ticking.cancel()
        assert (await mq.topic_stats("orders")).next_offset == 50
        assert (await mq.topic_stats("short")).next_offset == 50
        receipt = await mq.publish("orders", b"goes on")
        assert receipt.offset == 50
