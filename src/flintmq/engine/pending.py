"""A publish whose place is decided, and that waits for the journal."""

from __future__ import annotations

import asyncio

import msgspec

from ..model import Receipt


class Pending(asyncio.Future[Receipt]):
    """The receipt to come. Cancelling the wait does not take the publish back."""

    receipt: Receipt
    """What it will say. Whoever makes one puts it there."""
    _followers: list[Pending] | None = None

    def repeated(self) -> Pending:
        """The same publish once more: answered together with the first, and said to be a repeat."""
        follower = Pending(loop=self.get_loop())
        follower.receipt = msgspec.structs.replace(self.receipt, duplicate=True)
        if self._followers is None:
            self._followers = []
        self._followers.append(follower)
        return follower

    def applied(self) -> None:
        if not self.done():
            self.set_result(self.receipt)
        for follower in self._followers or ():
            follower.applied()

    def failed(self, error: BaseException) -> None:
        if not self.done():
            self.set_exception(error)
            self.exception()  # whoever still waits hears it; nobody else has to
        for follower in self._followers or ():
            follower.failed(error)
