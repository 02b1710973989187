"""The power goes while a process publishes; nothing that it acknowledged is lost.

The disk is ext4 in an image file, and the kernel is told to drop whatever had not been synced. That
takes root and loop devices: elsewhere these tests say that they did not run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from .kill_rounds import Rounds
from .loop_disk import CannotMount, LoopDisk, loop_disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopDisk]:
    with ExitStack() as until_the_end:
        try:
            disk = until_the_end.enter_context(loop_disk(tmp_path, mebibytes=512))
        except CannotMount as reason:
            pytest.skip(f"NO POWER CUT WAS TRIED: needs root, loop devices, mkfs.ext4: {reason}")
        yield disk


def test_the_disk_forgets_what_was_not_synced(disk: LoopDisk) -> None:
    """Else the test below would show nothing."""
    (disk.path / "unsynced").write_bytes(b"gone")

    disk.cut_power()
    disk.unmount()
    disk.mount()

    assert not (disk.path / "unsynced").exists()


@pytest.mark.slow
def test_what_was_acknowledged_survives_a_power_cut(disk: LoopDisk) -> None:
    def power_comes_back() -> None:
        disk.unmount()
        disk.mount()

    rounds = Rounds(
        disk.path / "data", seed=12, before_kill=disk.cut_power, after_kill=power_comes_back
    )
    result = rounds.run(12)

    print(result)
    assert result.is_good, str(result)
    assert result.acknowledged > 300
