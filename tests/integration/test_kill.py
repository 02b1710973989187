"""A process is killed at random moments; nothing that it acknowledged is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from .kill_rounds import Rounds


@pytest.mark.slow
def test_twenty_kills_lose_nothing_invent_nothing_and_double_nothing(tmp_path: Path) -> None:
    result = Rounds(tmp_path / "data", seed=40).run(20)

    print(result)
    assert result.is_good, str(result)
    assert result.acknowledged > 500
    assert result.commits > 5
