"""`kill -9` under load: two rounds of kill_rounds.py, which runs as many as one likes."""

from __future__ import annotations

from pathlib import Path

import pytest

from .kill_rounds import rounds


@pytest.mark.slow
async def test_nothing_that_was_answered_is_lost_by_kill_9(tmp_path: Path) -> None:
    known = await rounds(tmp_path, 2, seed=1)

    assert known.produced
    assert known.acked
