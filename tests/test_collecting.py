"""Collections of garbage go through what is new, and now and then through everything."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from flintmq.loop import collecting


def test_what_outlives_a_collection_of_all_is_frozen_until_twice_as_much_is_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []
    held = 1_000
    monkeypatch.setattr(gc, "freeze", lambda: done.append("freeze"))
    monkeypatch.setattr(gc, "unfreeze", lambda: done.append("unfreeze"))
    monkeypatch.setattr(sys, "getallocatedblocks", lambda: held)
    frozen = collecting._Frozen()

    frozen.collected("start", {"generation": 2})
    frozen.collected("stop", {"generation": 1})
    assert done == []
    frozen.collected("stop", {"generation": 2})
    assert done == ["freeze"]

    held = collecting.WHOLE_BLOCKS_MIN + 1
    frozen.collected("stop", {"generation": 2})
    assert done == ["freeze"] * 2 + ["unfreeze"]
    frozen.collected("stop", {"generation": 2})  # that one went through everything
    held = 2 * collecting.WHOLE_BLOCKS_MIN
    frozen.collected("stop", {"generation": 2})
    assert done == ["freeze"] * 2 + ["unfreeze"] + ["freeze"] * 2
    held += 3
    frozen.collected("stop", {"generation": 2})
    assert done[-1] == "unfreeze"


@pytest.mark.slow
def test_what_was_loaded_before_makes_no_collection_larger() -> None:
    script = """
import gc
from flintmq.loop.collecting import keep_pauses_short
loaded = [[] for _ in range(400_000)]
keep_pauses_short()
before = gc.get_stats()[2]["collections"]
fresh = [[] for _ in range(60_000)]
print(gc.get_stats()[2]["collections"] - before)
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(ran.stdout) >= 1
