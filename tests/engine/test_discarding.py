"""Dead letters that were discarded: gone after a restart, in backups and in files."""

from __future__ import annotations

from pathlib import Path

import pytest

import flintmq
from flintmq.broker_api import Fetch
from flintmq.engine.host import Host
from flintmq.spark.directory import SegmentDirectory
from flintmq.spark.ranges import Range
from flintmq.storage.filesystem import LocalFileSystem
from flintmq.storage.inspect import messages
from flintmq.storage.repair import carry_out, plan_repair

LETTERS = "dead.jobs.g"
KEPT = [b"0", b"2", b"4"]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Host, "first_file_bytes", 16 * 1024)


async def _discard(mq: flintmq.Client) -> None:
    await mq.publish_batch("jobs", [b"%d" % number for number in range(5)])
    for message in await mq.poll("jobs", "g", 5):
        await message.reject("no good")
    assert await mq.discard("jobs", "g", [1, 3]) == 2


async def _seen(mq: flintmq.Client) -> list[bytes]:
    """By every way there is to look."""
    async with mq.reader(LETTERS) as reader:
        read = (await reader.read_batch(10, timeout=0)).values
    for with_expired in (False, True):
        fetched = await mq._broker.fetch(
            Fetch(
                LETTERS,
                0,
                end=None,
                max_rows=10,
                max_bytes=1_000_000,
                filter=None,
                with_expired=with_expired,
            )
        )
        assert fetched.rows.values == read
    polled = await mq.poll(LETTERS, f"group-{len(await mq.groups(LETTERS))}", 10)
    assert polled.values == read
    assert [letter.message.value for letter in await mq.dead_letters("jobs", "g")] == read
    return list(read)


def _in_files(directory: Path) -> list[bytes]:
    files = SegmentDirectory(str(directory))
    stored = files.stored()[LETTERS]
    one = Range(LETTERS, 0, LETTERS, stored.id, stored.first_offset, stored.next_offset)
    pieces = list(files.batches(one))
    return [batch.value(row) for batch, start, stop in pieces for row in range(start, stop)]


def _dumped(directory: Path) -> list[bytes]:
    pieces = messages(LocalFileSystem(directory), LETTERS)
    return [batch.value(row) for batch, start, stop in pieces for row in range(start, stop)]


async def test_what_was_discarded_is_gone_after_a_restart_from_the_journal(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/data"
    async with flintmq.connect(url) as mq:
        await _discard(mq)
        assert await _seen(mq) == KEPT
    async with flintmq.connect(url) as mq:
        assert await _seen(mq) == KEPT


async def test_what_was_discarded_is_gone_in_checkpoints_backups_and_files(tmp_path: Path) -> None:
    async with flintmq.connect(f"file://{tmp_path}/data") as mq:
        await _discard(mq)
        await mq.backup(tmp_path / "copy")
    assert _in_files(tmp_path / "copy") == _dumped(tmp_path / "copy") == KEPT
    for name in ("data", "copy"):
        async with flintmq.connect(f"file://{tmp_path}/{name}") as mq:
            assert await _seen(mq) == KEPT
            assert await mq.discard("jobs", "g") == 3
            assert (await mq.topic_stats(LETTERS)).message_count == 0


async def test_what_was_discarded_is_not_among_what_a_repair_saves(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    async with flintmq.connect(f"file://{directory}") as mq:
        await _discard(mq)
        assert await mq.discard("jobs", "g", [0]) == 1, "it is at the front, and dropped"
        await mq.backup(tmp_path / "copy")  # the letters are in a segment now
        await mq.publish("jobs", b"later")
        for message in await mq.poll("jobs", "g"):
            await message.reject("no good")
    *_, last = sorted((directory / "segments").iterdir())
    last.write_bytes(last.read_bytes().replace(b"later", b"worse"))

    filesystem = LocalFileSystem(directory)
    carry_out(filesystem, plan_repair(filesystem, cut_journal=False))

    async with flintmq.connect(f"file://{directory}") as mq:
        (saved,) = [name for name in await mq.topics() if name.startswith(f"{LETTERS}.salvaged")]
        async with mq.reader(saved) as reader:
            assert (await reader.read_batch(10, timeout=0)).values == [b"2", b"4"]
