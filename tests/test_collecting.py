"""Collections of garbage go through what is new, and now and then through everything."""

from __future__ import annotations

import gc
import sys

import pytest

from flintmq import collecting


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
