"""How the record batches of one task reach the broker.

`Staged` stages them, piece by piece, for one commit of the whole job or micro-batch. `Numbered`
publishes them at once, each with a producer id and a sequence. With ids that stay the same when a
task runs again, the broker drops duplicates; with new ids each time, it does not.

Both make requests; `UnderWay` sends them while the next rows are prepared, a few at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, Protocol

from ..batch import RecordBatch
from ..batch.from_arrow import from_arrow
from ..model import Receipt
from .connecting import BrokerLine
from .write_options import WriteOptions

PIECE_BYTES = 4 * 1024 * 1024
UNDER_WAY_MAX = 4
"""Pieces, or batches of a publish, that are sent and not answered yet."""

WINDOW_ROWS = 65_536
"""A topic remembers the last 100,000 sequences of a producer. So a task changes its producer id
after this many rows: the broker then knows everything that the task has written."""
STEP = 1 << 32
"""Distance between the sequences of one micro-batch and the next."""

Request = Coroutine[Any, Any, Any]


class TaskDelivery(Protocol):
    names: list[str]
    """The staged pieces, to be committed."""

    def send(self, topic: str, rows: Any) -> Iterator[Request]:
        """Take the rows of one record batch for a plain topic; what to send now."""
        ...

    def rest(self) -> Iterator[Request]:
        """What is left to send at the end."""
        ...


class UnderWay:
    """Requests that are sent and not answered yet. `begin` and `wait` raise the first error; at the
    end of the block, every answer is here."""

    def __init__(self, line: BrokerLine) -> None:
        self._line = line
        self._futures: deque[Future[Any]] = deque()

    def begin(self, requests: Iterator[Request]) -> None:
        for request in requests:
            self._futures.append(self._line.begin(request))
            while len(self._futures) > UNDER_WAY_MAX:
                self._futures.popleft().result()

    def wait(self) -> None:
        while self._futures:
            self._futures.popleft().result()

    def __enter__(self) -> UnderWay:
        return self

    def __exit__(self, *_: object) -> None:
        while self._futures:
            self._futures.popleft().exception()


class Staged:
    def __init__(
        self, line: BrokerLine, options: WriteOptions, writer: str, number: int, attempt: str
    ) -> None:
        self._line, self._options = line, options
        self._writer, self._number, self._attempt = writer, number, attempt
        self._piece: list[tuple[str, RecordBatch]] = []
        self._bytes = 0
        self.names: list[str] = []

    def send(self, topic: str, rows: Any) -> Iterator[Request]:
        batch = from_arrow(rows, compression=self._options.compression)
        if self._bytes + batch.byte_length > 2 * PIECE_BYTES:
            yield from self.rest()  # a large message gets a request of its own
        self._piece.append((topic, batch))
        self._bytes += batch.byte_length
        if self._bytes >= PIECE_BYTES:
            yield from self.rest()

    def rest(self) -> Iterator[Request]:
        if self._piece:
            self.names.append(f"{self._attempt}/{len(self.names)}")
            piece, self._piece, self._bytes = self._piece, [], 0
            yield self._line.broker.stage(
                self._writer,
                self._number,
                self.names[-1],
                piece,
                auto_create=self._options.auto_create,
            )


class Numbered:
    def __init__(self, line: BrokerLine, options: WriteOptions, producer: str, number: int) -> None:
        self._line, self._options = line, options
        self._producer, self._first = producer, number * STEP
        self._rows: dict[str, int] = {}
        self.names: list[str] = []

    def send(self, topic: str, rows: Any) -> Iterator[Request]:
        yield self.publish(topic, rows)

    def publish(self, topic: str, rows: Any) -> Coroutine[Any, Any, Receipt]:
        """Publish rows under the next sequences."""
        at = self._rows.get(topic, 0)
        self._rows[topic] = at + rows.num_rows
        batch = from_arrow(
            rows,
            compression=self._options.compression,
            producer=f"{self._producer}/{at // WINDOW_ROWS}",
            base_sequence=self._first + at,
        )
        return self._line.broker.publish(
            topic,
            batch,
            qos=1,
            auto_create=self._options.auto_create,
            timeout=self._line.settings.patience,
        )

    def rest(self) -> Iterator[Request]:
        yield from ()
