"""Bells: everybody who waits is woken, whatever one of them does."""

from __future__ import annotations

import asyncio

import pytest

from flintmq.engine.waiting import Bell
from flintmq.testing import ManualClock


async def test_a_bell_wakes_all_though_one_listener_raises() -> None:
    bell, heard = Bell(), list[str]()

    def raises() -> None:
        raise ValueError("a fault of ours")

    waiting = asyncio.ensure_future(bell.wait(ManualClock(), None))
    await asyncio.sleep(0)
    bell.listeners |= {raises, lambda: heard.append("one"), lambda: heard.append("another")}
    with pytest.raises(ValueError, match="a fault of ours"):
        bell.ring()

    assert sorted(heard) == ["another", "one"]
    assert await waiting
