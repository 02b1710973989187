"""A publish whose place is decided, and that waits for the journal."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

import msgspec

from ..model import Durability, Receipt


class Pending:
    """Await it for the receipt. Cancelling the wait does not take the publish back."""

    __slots__ = ("_followers", "_future", "_receipt")

    def __init__(self, receipt: Receipt, loop: asyncio.AbstractEventLoop) -> None:
        self._receipt = receipt
        self._future: asyncio.Future[Receipt] = loop.create_future()
        self._followers: list[Pending] | None = None

    def repeated(self) -> Pending:
        """The same publish once more: answered together with the first, and said to be a repeat."""
        receipt = msgspec.structs.replace(self._receipt, duplicate=True)
        follower = Pending(receipt, self._future.get_loop())
        if self._followers is None:
            self._followers = []
        self._followers.append(follower)
        return follower

    def done(self, durability: Durability) -> None:
        if not self._future.done():
            r = self._receipt
            if r.durability != durability:
                r = Receipt(
                    r.topic, r.offset, r.count, r.partition, r.dropped, r.duplicate, durability
                )
            self._future.set_result(r)
        for follower in self._followers or ():
            follower.done(durability)

    def failed(self, error: BaseException) -> None:
        if not self._future.done():
            self._future.set_exception(error)
            self._future.exception()  # whoever still waits hears it; nobody else has to
        for follower in self._followers or ():
            follower.failed(error)

    def __await__(self) -> Generator[Any, None, Receipt]:
        return self._future.__await__()
