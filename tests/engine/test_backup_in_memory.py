"""What memory:// says to a backup."""

from __future__ import annotations

from pathlib import Path

import pytest

import flintmq


async def test_memory_has_nothing_to_back_up_and_says_so(tmp_path: Path) -> None:
    async with flintmq.connect("memory://") as mq:
        with pytest.raises(flintmq.InvalidRequest, match="memory://"):
            await mq.backup(tmp_path / "backup")

    assert not (tmp_path / "backup").exists()
