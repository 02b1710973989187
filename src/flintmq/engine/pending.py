"""A publish whose place is decided, and that waits for the journal."""

from __future__ import annotations

import asyncio

import msgspec

from ..model import Durability, Receipt


class Pending(asyncio.Future[Receipt]):
    """The receipt to come. Cancelling the wait does not take the publish back."""

    def __init__(self, receipt: Receipt, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._receipt = receipt
        self._followers: list[Pending] | None = None

    def repeated(self) -> Pending:
        """The same publish once more: answered together with the first, and said to be a repeat."""
        receipt = msgspec.structs.replace(self._receipt, duplicate=True)
        follower = Pending(receipt, self.get_loop())
        if self._followers is None:
            self._followers = []
        self._followers.append(follower)
        return follower

    def applied(self, durability: Durability) -> None:
        if not self.done():
            r = self._receipt
            if r.durability != durability:
                r = Receipt(
                    r.topic, r.offset, r.count, r.partition, r.dropped, r.duplicate, durability
                )
            self.set_result(r)
        for follower in self._followers or ():
            follower.applied(durability)

    def failed(self, error: BaseException) -> None:
        if not self.done():
            self.set_exception(error)
            self.exception()  # whoever still waits hears it; nobody else has to
        for follower in self._followers or ():
            follower.failed(error)
