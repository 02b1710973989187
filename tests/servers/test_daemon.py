"""The broker as a process of its own, run in the test's: start, stop, and a disk that fails."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import flintmq
from flintmq.config.table import Config
from flintmq.daemon.process import Daemon
from flintmq.observe.logs import event_of
from flintmq.storage.filesystem import LocalFile


def _daemon(directory: Path) -> Daemon:
    return Daemon(Config(data_dir=directory, listen=("127.0.0.1", 0), drain_seconds=1))


async def _started(daemon: Daemon) -> tuple[asyncio.Task[None], str]:
    ready: asyncio.Future[tuple[str, int]] = asyncio.get_running_loop().create_future()
    running = asyncio.ensure_future(daemon.run(ready.set_result))
    await asyncio.wait((ready, running), return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        await running
    host, port = ready.result()
    return running, f"flint://{host}:{port}"


async def test_what_is_published_is_there_after_a_stop_and_a_start(tmp_path: Path) -> None:
    for number in range(2):
        daemon = _daemon(tmp_path / "data")
        running, url = await _started(daemon)
        async with flintmq.connect(url) as mq:
            receipt = await mq.publish("orders", b"x")
            assert (receipt.offset, receipt.durability) == (number, "synced")
        daemon.stop()
        await running


async def test_a_stop_with_clients_that_wait_does_not_wait_for_them(tmp_path: Path) -> None:
    daemon = _daemon(tmp_path / "data")
    running, url = await _started(daemon)
    mq = await flintmq.connect(url, timeout=0.2)
    reader = await mq.reader("orders")
    reading = asyncio.ensure_future(reader.read())
    await asyncio.sleep(0.05)
    daemon.stop()
    await asyncio.wait_for(running, 60)

    with pytest.raises((flintmq.Disconnected, flintmq.OutcomeUnknown)):
        await reading
    await mq.close()


async def test_a_disk_that_fails_stops_the_broker_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, url = await _started(_daemon(tmp_path / "data"))
    mq = await flintmq.connect(url, timeout=0.2)
    await mq.publish("orders", b"safe", timeout=60)

    def fail(file: LocalFile) -> None:
        raise flintmq.StorageFailed("sync", file.name, "as the test wants it")

    with monkeypatch.context() as patched:
        patched.setattr(LocalFile, "sync", fail)
        with pytest.raises(flintmq.FlintError):
            await mq.publish("orders", b"unknown")
        with pytest.raises(flintmq.StorageFailed, match="as the test wants it"):
            await asyncio.wait_for(running, 60)
    await mq.close()

    daemon = _daemon(tmp_path / "data")
    running, url = await _started(daemon)
    async with flintmq.connect(url) as mq, mq.reader("orders") as reader:
        message = await reader.read(timeout=60)
        assert message is not None
        assert message.value == b"safe"
    daemon.stop()
    await running


async def test_a_directory_or_a_port_that_is_taken_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    daemon = _daemon(tmp_path / "data")
    running, url = await _started(daemon)
    with pytest.raises(flintmq.DataDirectoryInUse):
        await _started(_daemon(tmp_path / "data"))
    port = int(url.rpartition(":")[2])
    other = Daemon(Config(data_dir=tmp_path / "other", listen=("127.0.0.1", port)))
    with pytest.raises(flintmq.Disconnected, match=f"127.0.0.1:{port}.*in use"):
        await _started(other)
    not_started = [r for r in caplog.records if event_of(r)[0] == "not_started"]
    assert [record.levelname for record in not_started] == ["ERROR", "ERROR"]
    assert "is in use by process" in not_started[0].getMessage()
    daemon.stop()
    await running
