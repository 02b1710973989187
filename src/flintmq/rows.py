"""What a read returns: rows of record batches, seen as values, as columns, or as messages.

Nothing is decoded before somebody looks at it, and a message object is made only when it is
iterated over or indexed. Rows keep the batches they point into alive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, Protocol, Self, TypeVar, get_args, overload

import msgspec

from .batch import HeaderValue, Key, RowSource
from .errors import DecodeFailed, InvalidRequest
from .model import Missed, TopicOptions

T = TypeVar("T")


class ValueTooLarge(Exception):
    """A filter would have to look at more than it may in one step."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(f"its value has more than {bytes_max:,} bytes")
        self.bytes_max = bytes_max


class Decoder(Protocol):
    """What turns the bytes of a row into a value; a connection's codec."""

    def value_for_filter(
        self, source: RowSource, row: int, origin: Origin, fields: tuple[str, ...] | None
    ) -> Any:
        """What a filter sees; of a map no more than these fields. Raises ValueTooLarge."""
        ...

    def decode_row(self, source: RowSource, row: int, origin: Origin, type: Any) -> Any: ...
    def unpack_row(self, source: RowSource, row: int, origin: Origin) -> bytes: ...
    def decode_rows(self, run: Run, type: Any, on_error: OnError) -> list[Any]: ...
    @property
    def replier(self) -> Callable[..., Any] | None:
        """Replies to a message, for the connection; called with the message and the value."""
        ...


OnError = Literal["raise", "return", "skip"]


class Origin(msgspec.Struct, frozen=True, eq=False):
    """Where rows come from, and how their values are decoded."""

    topic: str
    partition: int = 0
    decoder: Decoder | None = None
    options: TopicOptions | None = None


class Message(msgspec.Struct, frozen=True, gc=False, eq=False, repr_omit_defaults=True):
    """One message: a view of one row. `value` is bytes; times are seconds since 1970."""

    _source: RowSource
    _row: int
    _origin: Origin

    @property
    def topic(self) -> str:
        return self._origin.topic

    @property
    def partition(self) -> int:
        return self._origin.partition

    @property
    def offset(self) -> int | None:
        """Its place in the topic; None for a message that was never stored (QoS 0)."""
        base = self._source.base_offset
        return None if base < 0 else base + self._row

    @property
    def value(self) -> Any:
        return self._source.value(self._row)

    @overload
    def decode(self, type: type[T]) -> T: ...
    @overload
    def decode(self, type: Any = None) -> Any: ...
    def decode(self, type: Any = None) -> Any:
        """The value as the object it was: by what the message says of itself, else by its topic.

        With `type` (a dataclass, msgspec Struct, pydantic model ...) it becomes one of these.
        Raises DecodeFailed, which concerns this message alone.
        """
        decoder = self._origin.decoder
        if decoder is None:
            raise InvalidRequest("this message has no connection to decode its value with")
        return decoder.decode_row(self._source, self._row, self._origin, type)

    def reply(self, value: Any, **said: Any) -> Any:
        """Reply to a request. In async code, wait for the result.

        Takes what `mq.reply` takes. The result is whether the request was still waiting. A message
        of a queue has to be acknowledged as well.
        """
        decoder = self._origin.decoder
        if decoder is None or decoder.replier is None:
            raise InvalidRequest("this message has no connection to send a reply by")
        return decoder.replier(self, value, **said)

    def unpacked(self) -> bytes:
        """The bytes that were published: compression, hooks and magic header are undone, and the
        format is not. Raises DecodeFailed, which concerns this message alone.
        """
        decoder = self._origin.decoder
        if decoder is None:
            raise InvalidRequest("this message has no connection to decompress its value with")
        return decoder.unpack_row(self._source, self._row, self._origin)

    @property
    def key(self) -> Key | None:
        return self._source.key(self._row)

    @property
    def headers(self) -> dict[str, HeaderValue]:
        return self._source.headers(self._row)

    @property
    def priority(self) -> int:
        return self._source.priority(self._row)

    @property
    def content_type(self) -> str | None:
        return self._source.content_type(self._row)

    @property
    def timestamp(self) -> float:
        """When the broker took it in."""
        return self._source.time(self._row) / 1000

    @property
    def time(self) -> datetime:
        """The same as an aware datetime, in UTC."""
        return datetime.fromtimestamp(self.timestamp, UTC)

    @property
    def expires_at(self) -> float | None:
        """When its own ttl ends it; a ttl of the topic is not counted here."""
        expiry = self._source.expiry(self._row)
        return expiry / 1000 if expiry else None

    @property
    def deliver_at(self) -> float | None:
        due = self._source.deliver_at(self._row)
        return due / 1000 if due else None

    @property
    def delivery_count(self) -> int:
        """How often the message was delivered; always 1 for a reader."""
        return 1

    @property
    def size(self) -> int:
        """The bytes it counts for: value, key, headers."""
        return self._source.size(self._row, self._row + 1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and _facts(self) == _facts(other)

    def __hash__(self) -> int:
        return hash((self.topic, self.partition, self.offset))

    def __repr__(self) -> str:
        value = self.value
        shown = repr(value if not isinstance(value, bytes) or len(value) <= 40 else value[:40])
        if isinstance(value, bytes) and len(value) > 40:
            shown += f"... ({len(value):,} bytes)"
        key = f", key={self.key!r}" if self.key is not None else ""
        return f"Message(topic={self.topic!r}, offset={self.offset}, value={shown}{key})"


def _facts(message: Message) -> tuple[Any, ...]:
    return (
        message.topic,
        message.partition,
        message.offset,
        message.value,
        message.key,
        message.headers,
        message.priority,
        message.content_type,
        message.timestamp,
    )


class Metadata(msgspec.Struct, frozen=True, gc=False):
    """What is known of a message without its payload: for looking through a topic cheaply."""

    topic: str
    partition: int
    offset: int | None
    timestamp: float
    priority: int
    size: int
    expires_at: float | None
    deliver_at: float | None


class Run(NamedTuple):
    """A range of rows of one batch, or the picked ones of it."""

    source: RowSource
    start: int
    stop: int
    origin: Origin
    picks: Sequence[int] | None = None
    grip: Any = None
    """Of messages that a queue has handed out: what settles them."""

    @property
    def row_count(self) -> int:
        return self.stop - self.start if self.picks is None else len(self.picks)

    def rows(self) -> Sequence[int]:
        return range(self.start, self.stop) if self.picks is None else self.picks

    def values(self) -> Sequence[Any]:
        if self.picks is None:
            return self.source.values(self.start, self.stop)
        return [self.source.value(row) for row in self.picks]


M = TypeVar("M", bound=Message)


class RowsOf(Sequence[M]):
    """A sequence of messages of some kind that equals the list of them."""

    __slots__ = ("_count", "_runs", "_values", "gap")

    def __init__(self, runs: Sequence[Run] = (), gap: Missed | None = None) -> None:
        self._runs = runs
        self._count = -1
        self._values: list[Any] | None = None
        self.gap = gap
        """What retention took just before the first of these, if anything."""

    @property
    def missed(self) -> int:
        """How many messages retention took just before the first of these."""
        return self.gap.count if self.gap else 0

    @property
    def values(self) -> list[Any]:
        """The values alone, without making a message object of any."""
        if self._values is None:
            values: list[Any] = []
            for run in self._runs:
                values += run.values()
            self._values = values
        return self._values

    @overload
    def decode(self, type: type[T], on_error: Literal["raise", "skip"] = "raise") -> list[T]: ...
    @overload
    def decode(self, type: type[T], on_error: OnError) -> list[T | DecodeFailed]: ...
    @overload
    def decode(self, type: Any = None, on_error: OnError = "raise") -> list[Any]: ...
    def decode(self, type: Any = None, on_error: OnError = "raise") -> list[Any]:
        """The values as the objects they were; see Message.decode.

        `on_error` says what becomes of one that does not decode: `raise` DecodeFailed, `return` the
        error in its place, or `skip` it. The others are not affected.
        """
        if on_error not in get_args(OnError):
            raise InvalidRequest(f"on_error must be one of {', '.join(get_args(OnError))}")
        decoded: list[Any] = []
        for run in self._runs:
            decoder = run.origin.decoder
            if decoder is None:
                raise InvalidRequest(
                    "these messages have no connection to decode their values with"
                )
            decoded += decoder.decode_rows(run, type, on_error)
        return decoded

    def to_arrow(self) -> Any:
        """The messages as a pyarrow Table, columns of sealed batches without a copy.

        Needs the extra `arrow`; the columns are those of `flintmq.arrow.arrow_schema()`.
        """
        from .arrow import table_of

        return table_of([(run.source, run.start, run.stop, run.picks) for run in self._runs])

    @property
    def keys(self) -> list[Key | None]:
        return self._column(lambda source: source.key)

    @property
    def headers(self) -> list[dict[str, HeaderValue]]:
        return self._column(lambda source: source.headers)

    @property
    def offsets(self) -> list[int | None]:
        return [message.offset for message in self]

    @property
    def metadata(self) -> list[Metadata]:
        """The facts beside the payload. Values, keys and headers are not decoded."""
        return [_metadata(run.source, row, run.origin) for run in self._runs for row in run.rows()]

    @property
    def runs(self) -> Sequence[Run]:
        """The ranges of batches these rows are, for whoever works by columns."""
        return self._runs

    def with_runs(self, runs: Sequence[Run], gap: Missed | None = None) -> Self:
        """Rows of the same kind: a part of these, or another view of them."""
        return type(self)(runs, gap)

    def split(self, count: int) -> tuple[Self, Self]:
        """The first `count` of these, and the rest."""
        head: list[Run] = []
        rest: list[Run] = []
        for run in self._runs:
            rows = run.rows()
            if len(rows) <= count:
                head.append(run)
            elif not count:
                rest.append(run)
            else:
                head.append(run._replace(picks=rows[:count]))
                rest.append(run._replace(picks=rows[count:]))
            count = max(0, count - len(rows))
        return self.with_runs(head, self.gap), self.with_runs(rest)

    def _column(self, column: Callable[[RowSource], Callable[[int], Any]]) -> list[Any]:
        return [item for run in self._runs for item in map(column(run.source), run.rows())]

    def __len__(self) -> int:
        if self._count < 0:
            self._count = sum(run.row_count for run in self._runs)
        return self._count

    @overload
    def __getitem__(self, index: int) -> M: ...
    @overload
    def __getitem__(self, index: slice) -> list[M]: ...
    def __getitem__(self, index: int | slice) -> M | list[M]:
        if isinstance(index, slice):
            return [self._message(row) for row in range(*index.indices(len(self)))]
        count = len(self)
        if not -count <= index < count:
            raise IndexError(f"row {index} of {count}")
        return self._message(index % count)

    def _message(self, index: int) -> M:
        for run in self._runs:
            if index < run.row_count:
                return self._made(run, run.rows()[index])
            index -= run.row_count
        raise IndexError(index)

    def _made(self, run: Run, row: int) -> M:
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RowsOf | list | tuple):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"{name}({len(self)} messages)" if self else f"{name}([])"


class Rows(RowsOf[Message]):
    """A sequence of messages that equals the list of them. `values` is the fast way through it."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Message]:
        for run in self._runs:
            source, start, stop, origin, picks, _ = run
            for row in range(start, stop) if picks is None else picks:
                yield Message(source, row, origin)

    def _made(self, run: Run, row: int) -> Message:
        return Message(run.source, row, run.origin)


def _metadata(source: RowSource, row: int, origin: Origin) -> Metadata:
    expiry, due = source.expiry(row), source.deliver_at(row)
    return Metadata(
        topic=origin.topic,
        partition=origin.partition,
        offset=source.base_offset + row if source.base_offset >= 0 else None,
        timestamp=source.time(row) / 1000,
        priority=source.priority(row),
        size=source.size(row, row + 1),
        expires_at=expiry / 1000 if expiry else None,
        deliver_at=due / 1000 if due else None,
    )
