from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from .throw_away import Authority

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=sorted(LOOPS))
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a story on either event loop: both have their own ways with sockets."""

    def on_this_loop(story: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(asyncio.wait_for(story, 60))

    return on_this_loop


@pytest.fixture
def ca(tmp_path: Path) -> Authority:
    return Authority(tmp_path)
