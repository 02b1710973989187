"""A backup is a consistent copy, made while work goes on, and a data directory itself."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

import flintmq
from flintmq.testing import ManualClock

from .queues import deleted


@pytest.fixture(autouse=True)
def _on_disk(url: str) -> None:
    if url == "memory://":
        pytest.skip("memory:// has nothing to back up")


async def stored(path: Path, topic: str = "orders") -> list[bytes]:
    async with flintmq.connect(f"file://{path}") as mq, mq.reader(topic) as reader:
        return list((await reader.read_batch(10_000, timeout=0)).values)


async def backed_up(mq: flintmq.Client, path: Path) -> Path:
    """Where a backup was made. One whose leader was lost is not known to be whole: another is made
    at another place."""
    try:
        await mq.backup(path)
    except flintmq.OutcomeUnknown:
        path = path.with_name(f"{path.name}-again")
        await mq.backup(path)
    return path


async def test_a_backup_opens_as_what_was_there(mq: flintmq.Client, tmp_path: Path) -> None:
    await mq.create_topic("orders", retention_count=7)
    await mq.publish_batch("orders", [b"%d" % number for number in range(10)])
    await mq.stage("job", 3, 0, {"orders": [b"staged"]})
    async with mq.reader("orders", name="r") as reader:
        await reader.read_batch(4)
        await reader.commit()

    backup = await backed_up(mq, tmp_path / "backup")
    await mq.publish("orders", b"later")

    # What is staged must not have rested for years: the backup is of the clock's time.
    async with flintmq.connect(f"file://{backup}", clock=ManualClock()) as copy:
        assert (await copy.topic_info("orders")).options.retention_count == 7
        async with copy.reader("orders", name="r") as reader:
            assert list((await reader.read_batch(100)).values) == [b"7", b"8", b"9"]
        (receipt,) = await copy.commit("job", 3, [0])
        assert receipt.offset == 10
    assert (await stored(backup))[-1] == b"staged"


async def test_publishing_goes_on_while_a_backup_is_made(
    mq: flintmq.Client, tmp_path: Path
) -> None:
    await mq.publish("orders", b"0")

    async def publish() -> None:
        for number in range(1, 50):
            await mq.publish("orders", b"%d" % number)

    _, *backups = await asyncio.gather(
        publish(), backed_up(mq, tmp_path / "a"), backed_up(mq, tmp_path / "b")
    )

    for backup in backups:
        copied = await stored(backup)
        assert copied == [b"%d" % number for number in range(len(copied))]
        assert copied


async def test_a_backup_takes_an_empty_directory(mq: flintmq.Client, tmp_path: Path) -> None:
    target = tmp_path / "backup"
    target.mkdir()
    (target / "mine").write_text("mine")

    with pytest.raises(flintmq.InvalidRequest, match="not empty"):
        await mq.backup(target)

    assert [path.name for path in target.iterdir()] == ["mine"]


async def test_progress_is_in_the_log(
    mq: flintmq.Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await mq.publish("orders", b"0")
    with caplog.at_level(logging.INFO, logger="flintmq"):
        await backed_up(mq, tmp_path / "backup")

    assert "1 of 1 segments" in caplog.text
    assert "done" in caplog.text


async def test_what_a_backup_was_made_of_may_go_afterwards(
    mq: flintmq.Client, tmp_path: Path
) -> None:
    await mq.publish("orders", b"0")
    backup = await backed_up(mq, tmp_path / "backup")
    await deleted(mq)
    empty = await backed_up(mq, tmp_path / "empty")

    assert await stored(backup) == [b"0"]
    assert not list((empty / "segments").iterdir())


async def test_a_backup_on_a_restart_goes_on_where_it_was(tmp_path: Path) -> None:
    async with flintmq.connect(f"file://{tmp_path}/data") as mq:
        await mq.publish_batch("orders", [b"0", b"1"])
        await mq.backup(tmp_path / "backup")
    for number in (2, 3, 4):
        async with flintmq.connect(f"file://{tmp_path}/backup") as mq:
            assert (await mq.publish("orders", b"%d" % number)).offset == number
    assert await stored(tmp_path / "backup") == [b"0", b"1", b"2", b"3", b"4"]
