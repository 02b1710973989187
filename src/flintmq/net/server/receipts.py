"""Receipts of publishes that came as rows, gathered: one frame for all of one turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...model import Receipt
from ..wire.operations import Op, encode
from ..wire.values import receipt_fields

if TYPE_CHECKING:
    from .session import Session


class GatheredReceipts:
    """They go out before everything else that is sent from now on."""

    __slots__ = ("_durability", "_session", "places")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._durability = ""
        self.places: list[int] = []
        """Ids and offsets by turns, of publishes that were stored."""

    def add(self, request: int, receipt: Receipt) -> None:
        """Answer a publish: with others, if there is no more to say than where it went."""
        r = receipt
        if r.offset is None or r.dropped or r.duplicate:
            self._session.send(Op.REPLY, request, encode([receipt_fields(receipt)]))
            return
        self.add_all((request, r.offset), r.durability)
        if self._session.connection is not None:
            self._session.connection.flush_later()

    def add_all(self, places: Sequence[int], durability: str) -> None:
        """Of many; whoever adds them sees to it that they are sent."""
        if self.places and durability != self._durability:
            self.send()
        self._durability = durability
        self.places += places
        if self._session.connection is None:
            self.send()

    def send(self) -> None:
        places, self.places = self.places, []
        if places:
            self._session.send(Op.RECEIPTS, 0, encode((self._durability, places)))
