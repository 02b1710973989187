"""Data directories that somebody has been at: told when opened, and nothing else is touched."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import flintmq
from tests.power_cut import copy_as_cut


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Fifty messages in a segment, and fifty more that only the journal has."""
    directory, killed = tmp_path / "data", tmp_path / "killed"
    with flintmq.connect_sync(f"file://{directory}") as mq:
        mq.publish_batch("orders", [b"x"] * 50)
    with flintmq.connect_sync(f"file://{directory}") as mq:
        mq.publish_batch("orders", [b"y"] * 50)
        copy_as_cut(directory, killed)
    return killed


def count(directory: Path) -> int:
    with flintmq.connect_sync(f"file://{directory}") as mq:
        return mq.topic_stats("orders").message_count


def test_what_was_not_tampered_with_opens(directory: Path) -> None:
    assert count(directory) == 100


def test_a_journal_that_is_gone_is_told(directory: Path) -> None:
    shutil.rmtree(directory / "journal")

    with pytest.raises(flintmq.Corrupt, match="journal that is not there"):
        count(directory)


def test_a_journal_that_was_cut_short_is_told(directory: Path) -> None:
    journal = next((directory / "journal").glob("journal-*"))
    os.truncate(journal, journal.stat().st_size // 3)

    with pytest.raises(flintmq.Corrupt, match="cut short"):
        count(directory)


def test_a_segment_that_is_gone_is_told_before_anything_is_published(directory: Path) -> None:
    segment = next((directory / "segments").glob("*.seg"))
    segment.unlink()

    with pytest.raises(flintmq.Corrupt, match=f"{segment.name} is missing"):
        count(directory)


def test_files_that_are_not_ours_are_left_alone(directory: Path) -> None:
    foreign = [directory / "segments" / name for name in ("9.txt", "².seg", "77.seg")]
    for path in foreign:
        path.write_text("mine")

    assert count(directory) == 100
    assert [path.read_text() for path in foreign] == ["mine"] * 3


def test_names_that_differ_are_directories_that_differ(tmp_path: Path) -> None:
    for name in ("%fe", "%ff", "a%20b", "per%25cent"):
        with flintmq.connect_sync(f"file://{tmp_path}/{name}") as mq:
            assert mq.publish("orders", b"x").offset == 0

    assert {"a b", "per%cent"} <= set(os.listdir(tmp_path))
    assert len(os.listdir(tmp_path)) == 4


@pytest.mark.parametrize("url", ["file:///tmp/a%00b", "file:///tmp/\ud800", "file://relative"])
def test_paths_that_are_none_are_named(url: str) -> None:
    with pytest.raises(flintmq.InvalidRequest):
        flintmq.connect(url)


@pytest.mark.parametrize("fsync", [5, None, "sometimes", "interval:99999999999999999999"])
def test_policies_that_are_none_are_named(tmp_path: Path, fsync: str) -> None:
    with pytest.raises(flintmq.InvalidRequest, match="fsync"):
        flintmq.connect(f"file://{tmp_path}/data", fsync=fsync)


async def test_a_close_that_fails_ends_the_broker_before_another_may_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flintmq.engine.checkpoints import Checkpoints

    def out_of_memory(*_: object) -> None:
        raise MemoryError

    url = f"file://{tmp_path}/data"
    mq = flintmq.connect(url)
    async with mq:
        await mq.publish("orders", b"1")
        with monkeypatch.context() as patched:
            patched.setattr(Checkpoints, "checkpoint", out_of_memory)
            with pytest.raises(MemoryError):
                await mq.close()
    with pytest.raises(flintmq.Closed):
        await mq.publish("orders", b"2")
    async with flintmq.connect(url) as other:
        assert (await other.publish("orders", b"2")).offset == 1


async def test_a_fault_in_the_last_checkpoint_is_logged_and_the_journal_has_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from flintmq.errors import BrokerFailed
    from flintmq.storage.manifest import ManifestStore

    def out_of_memory(*_: object) -> None:
        raise MemoryError

    url = f"file://{tmp_path}/data"
    mq = await flintmq.connect(url)
    await mq.publish("orders", b"1")
    with monkeypatch.context() as patched:
        patched.setattr(ManifestStore, "write", out_of_memory)
        with pytest.raises(BrokerFailed, match="writing a checkpoint"):
            await mq.close()
    assert "internal error while writing a checkpoint" in caplog.text
    with pytest.raises(flintmq.Closed):
        await mq.publish("orders", b"2")
    async with flintmq.connect(url) as other, other.reader("orders", start="earliest") as reader:
        assert (await reader.read()).value == b"1"
        assert (await other.publish("orders", b"2")).offset == 1
