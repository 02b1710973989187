"""What is done in the background on behalf of a consumer, and waited for when it closes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ..errors import Disconnected, LeaseLost, OutcomeUnknown


class Errands:
    """Tasks that settle or renew leases. What goes wrong is `failed`, unless it does no harm."""

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        self._failed = failed
        self._tasks: set[asyncio.Task[None]] = set()

    def send_off(self, errand: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(self._run(errand))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait(self, timeout: float) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout)

    async def _run(self, errand: Coroutine[Any, Any, None]) -> None:
        try:
            await errand
        except LeaseLost:
            pass  # another consumer has the message by now
        except (Disconnected, OutcomeUnknown):
            pass  # what was to be given back is delivered to others when its lease has ended
        except Exception as error:
            self._failed(error)
