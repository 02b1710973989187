"""Staged writes: messages that are laid ready in parts, and appended in one step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..batch import BatchBuilder
from ..errors import InvalidRequest
from ..model import Receipt
from ..serde.codec import UNSAID
from .context import ClientContext
from .sending import Sender
from .values import Encoder, Value

Values = Iterable[Value] | BatchBuilder
Batches = Mapping[str, Values] | Iterable[tuple[str, Values]]
"""Values by topic: a dict, or pairs."""


class StagedPublishing:
    """The part of a client that stages messages and commits them."""

    def __init__(self, context: ClientContext, encoder: Encoder, sender: Sender) -> None:
        self._context = context
        self._broker = context.broker
        self._encoder = encoder
        self._sender = sender

    async def stage(
        self,
        writer: str,
        number: int,
        part: str | int,
        batches: Batches,
        *,
        auto_create: bool | None = None,
    ) -> None:
        """Stage messages that `commit` later appends atomically, together with others.

        `batches` has lists of values by topic, as a dict or as (topic, values) pairs; a
        `BatchBuilder` instead of a list adds keys and headers. `writer` identifies the writer,
        `number` is its transaction number, which grows, and `part` is a part of that transaction:
        staging a part again replaces it. Parts that are not committed within an hour are discarded.
        Numbers up to the last committed one of the writer are ignored.
        """
        self._context.check_open()
        now_ms = self._context.clock.now_ms()
        rows: list[tuple[str, BatchBuilder]] = []
        for topic, values in batch_pairs(batches):
            options = self._broker.known_options(topic)
            if isinstance(values, BatchBuilder):
                built = values
            else:
                plan = self._encoder.plan(topic, options, UNSAID)
                if plan is None:
                    raise InvalidRequest(
                        f"topic {topic!r} passes objects by reference; they cannot be staged"
                    )
                built = self._encoder.many(values, plan, {}, now_ms)
            if built.row_count:
                rows += self._sender.routed(topic, built, options, None)
        await self._broker.stage(
            writer, number, part, rows, auto_create=self._context.may_create(auto_create)
        )

    async def commit(
        self, writer: str, number: int, parts: Sequence[str | int], *, ends: bool = False
    ) -> list[Receipt]:
        """Append exactly the named parts to their topics, atomically.

        Returns a receipt for each topic and partition. Other parts that the writer has staged up to
        that number are discarded. The broker remembers the number: repeating the commit changes
        nothing, and returns the same receipts, marked as duplicates (none for earlier numbers).
        With `ends` the writer is forgotten after an hour (`staged_seconds`): for a name that is not
        used again. If a topic is full, TopicFull is raised and nothing is committed.
        """
        self._context.check_open()
        return await self._broker.commit(writer, number, parts, ends=ends)

    async def abort(self, writer: str, number: int) -> None:
        """Discard what is staged under a number. It can be staged again."""
        self._context.check_open()
        await self._broker.abort(writer, number)


def batch_pairs(batches: Batches) -> list[tuple[str, Values]]:
    """What is to be staged, as pairs, checked."""
    pairs = batches.items() if isinstance(batches, Mapping) else batches
    checked: list[tuple[str, Values]] = []
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise InvalidRequest(
                "batches must be a dict of lists of values by topic, or a list of (topic, "
                f"values) pairs; not one with {pair!r}"
            )
        checked.append((pair[0], pair[1]))
    return checked
