"""The example in the repository runs and shows what it says."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "raft_by_hand.py"


def test_three_nodes_by_hand_apply_the_same_entry(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLE), run_name="__main__")

    printed = capsys.readouterr().out
    assert "node 1 leads term 2" in printed
    assert [f"node {node} applies entry 3: b'hello'" in printed for node in (1, 2, 3)] == [True] * 3
