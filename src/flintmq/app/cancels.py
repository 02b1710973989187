"""Which tasks are cancelled: every worker follows the wishes, from those of the last day on."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

from ..client.client import Client
from ..errors import Closed, FlintError
from ..observe.logs import event
from .results import AGAIN_SECONDS, KEPT_BY_KEY, READ_MAX, ensure_topic
from .task_model import CANCELS

log = logging.getLogger(__name__)

REMEMBERED_MAX = 100_000


class CancelBook:
    """The ids that somebody wants cancelled; tells who works on one of them."""

    def __init__(self, mq: Client) -> None:
        self._mq = mq
        self._wished: OrderedDict[str, None] = OrderedDict()
        self._watched: dict[str, Callable[[], None]] = {}
        self._task: asyncio.Task[None] | None = None

    def has(self, task_id: str) -> bool:
        return task_id in self._wished

    def watch(self, task_id: str, cancel: Callable[[], None]) -> None:
        self._watched[task_id] = cancel

    def forget(self, task_id: str) -> None:
        self._watched.pop(task_id, None)

    async def start(self) -> None:
        """Return once all wishes so far are known."""
        await ensure_topic(self._mq, CANCELS, KEPT_BY_KEY)
        known = asyncio.Event()
        self._task = asyncio.create_task(self._keep_reading(known))
        first = asyncio.create_task(known.wait())
        try:
            await asyncio.wait([self._task, first], return_when=asyncio.FIRST_COMPLETED)
        finally:
            first.cancel()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _keep_reading(self, known: asyncio.Event) -> None:
        while True:
            try:
                async with self._mq.reader(CANCELS, start="last_per_key") as reader:
                    while await reader.lag():
                        self._wish(await reader.read_batch(READ_MAX, timeout=1.0))
                    known.set()
                    while True:
                        self._wish(await reader.read_batch(READ_MAX))
            except Closed:
                return
            except FlintError as error:
                event(
                    log,
                    logging.WARNING,
                    "cancels_unread",
                    f"cancellations of tasks cannot be read: {error}; trying again",
                )
                await asyncio.sleep(AGAIN_SECONDS)

    def _wish(self, rows: Iterable[Any]) -> None:
        for message in rows:
            task_id = message.key
            self._wished[task_id] = None
            if len(self._wished) > REMEMBERED_MAX:
                self._wished.popitem(last=False)
            cancel = self._watched.get(task_id)
            if cancel is not None:
                cancel()
