"""Those who wait to hear that this node still leads, and that all it must know is applied."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ..errors import FlintError
from ..raft import ReadState


class WaitingReads:
    def __init__(self) -> None:
        self._waiting: dict[bytes, asyncio.Future[None]] = {}
        self._confirmed: list[ReadState] = []
        self._count = 0

    def ask(self) -> tuple[bytes, asyncio.Future[None]]:
        """The context to ask the core with, and what to wait for."""
        self._count += 1
        context = self._count.to_bytes(8, "big")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[context] = future
        future.add_done_callback(lambda _: self._waiting.pop(context, None))
        return context, future

    def confirmed(self, reads: Sequence[ReadState]) -> None:
        self._confirmed += reads

    def serve(self, applied: int) -> None:
        """Answer those whose index is applied."""
        if not self._confirmed:
            return
        confirmed, self._confirmed = self._confirmed, []
        for read in confirmed:
            if read.index > applied:
                self._confirmed.append(read)
            elif (future := self._waiting.get(read.context)) is not None and not future.done():
                future.set_result(None)

    def fail(self, error: FlintError) -> None:
        self._confirmed = []
        for future in list(self._waiting.values()):
            if not future.done():
                future.set_exception(error)
                future.exception()
