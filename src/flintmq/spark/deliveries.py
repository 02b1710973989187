"""How the record batches of one task reach the broker.

`Staged` lays them ready, piece by piece, for one commit of the whole job or micro-batch. `Numbered`
publishes them at once, each with a producer id and a sequence: with ids that are the same when a
task runs again, the broker leaves out what it has; with ids that are new each time, it does not.

Both send while the next rows are made, and hold back whoever is too far ahead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Protocol

from ..batch import RecordBatch
from ..batch.from_arrow import from_arrow
from ..model import Receipt
from .connecting import BrokerLine

PIECE_BYTES = 4 * 1024 * 1024
UNDER_WAY_MAX = 4
"""Pieces, or batches of a publish, that are sent and not answered."""

WINDOW_ROWS = 65_536
"""A topic knows the last 100,000 sequences of a producer. So every so many rows are another
producer's: whatever a task has written last, all of it is known."""
STEP = 1 << 32
"""How far the sequences of one micro-batch are from those of the next."""


class TaskDelivery(Protocol):
    def send(self, topic: str, rows: Any) -> None:
        """Put the rows of one record batch for a plain topic on their way."""
        ...

    def finish(self) -> list[str]:
        """Wait until everything is there; the names of the pieces that have to be committed."""
        ...

    def give_up(self) -> None:
        """Wait for what is under way, whatever becomes of it."""
        ...


class UnderWay:
    """What was sent and is not answered yet. The first failure is raised to whoever sends next."""

    def __init__(self, line: BrokerLine, most: int = UNDER_WAY_MAX) -> None:
        self._line, self._most = line, most
        self._futures: deque[Future[Any]] = deque()

    def begin(self, work: Coroutine[Any, Any, Any]) -> None:
        self._futures.append(self._line.begin(work))
        while len(self._futures) > self._most:
            self._futures.popleft().result()

    def wait(self) -> None:
        while self._futures:
            self._futures.popleft().result()

    def forget(self) -> None:
        while self._futures:
            self._futures.popleft().exception()


class Staged:
    def __init__(
        self,
        line: BrokerLine,
        writer: str,
        number: int,
        attempt: str,
        *,
        compression: str = "none",
        auto_create: bool = True,
    ) -> None:
        self._line, self._writer, self._number, self._attempt = line, writer, number, attempt
        self._compression, self._auto_create = compression, auto_create
        self._piece: list[tuple[str, RecordBatch]] = []
        self._bytes = 0
        self._names: list[str] = []
        self._under_way = UnderWay(line)

    def send(self, topic: str, rows: Any) -> None:
        batch = from_arrow(rows, compression=self._compression)
        if self._piece and self._bytes + batch.byte_length > 2 * PIECE_BYTES:
            self._stage()  # a large message goes by itself: one request has room for it
        self._piece.append((topic, batch))
        self._bytes += batch.byte_length
        if self._bytes >= PIECE_BYTES:
            self._stage()

    def finish(self) -> list[str]:
        if self._piece:
            self._stage()
        self._under_way.wait()
        return self._names

    def give_up(self) -> None:
        self._under_way.forget()

    def _stage(self) -> None:
        name = f"{self._attempt}/{len(self._names)}"
        self._names.append(name)
        piece, self._piece, self._bytes = self._piece, [], 0
        self._under_way.begin(
            self._line.broker.stage(
                self._writer, self._number, name, piece, auto_create=self._auto_create
            )
        )


class Numbered:
    def __init__(
        self,
        line: BrokerLine,
        producer: str,
        number: int,
        *,
        compression: str = "none",
        auto_create: bool = True,
    ) -> None:
        self._line, self._producer, self._first = line, producer, number * STEP
        self._compression, self._auto_create = compression, auto_create
        self._rows: dict[str, int] = {}
        self._under_way = UnderWay(line)

    def send(self, topic: str, rows: Any) -> None:
        self._under_way.begin(self.published(topic, rows))

    def published(self, topic: str, rows: Any) -> Coroutine[Any, Any, Receipt]:
        """Rows on their way to a topic, under the numbers that come next."""
        at = self._rows.get(topic, 0)
        self._rows[topic] = at + rows.num_rows
        batch = from_arrow(
            rows,
            compression=self._compression,
            producer=f"{self._producer}/{at // WINDOW_ROWS}",
            base_sequence=self._first + at,
        )
        return self._line.broker.publish(
            topic,
            batch,
            qos=1,
            auto_create=self._auto_create,
            timeout=self._line.settings.patience,
        )

    def finish(self) -> list[str]:
        self._under_way.wait()
        return []

    def give_up(self) -> None:
        self._under_way.forget()
