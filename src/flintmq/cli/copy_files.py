"""Messages in files: JSON lines, one envelope each, or record batches as they are.

    orders.jsonl     {"topic": "orders", "offset": "0", ...}\\n  and so on; see `envelope`
    orders.batches   record batches one behind the other, nothing between them; see `batch.format`

Both store each message's offset, so an interrupted copy can be continued.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Callable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from ..batch import BatchBuilder, RecordBatch, RowSource
from ..batch.format import HEADER, HEADER_BYTES, MAGIC, padded
from ..errors import Corrupt, FlintError, InvalidRequest
from ..rows import Rows, Run
from .envelope import line, outgoing

STDIO = "-"
JSON_LINES, BATCHES = ".jsonl", ".batches"
READ_BYTES = 256 * 1024
BATCH = 1000


def is_file(name: str) -> bool:
    return name == STDIO or name.endswith((JSON_LINES, BATCHES))


class CopyBatch(NamedTuple):
    """Messages of a file, and how many messages precede the next batch."""

    rows: BatchBuilder
    read: int


def copied(source: RowSource, rows: range) -> BatchBuilder:
    """The rows as new messages: everything but their offsets and timestamps."""
    builder = BatchBuilder.of(list(source.values(rows.start, rows.stop)))
    builder.set_columns(
        keys=[source.key(row) for row in rows],
        headers=[source.headers(row) for row in rows],
        priorities=[source.priority(row) for row in rows],
        expiries=[source.expiry(row) for row in rows],
        deliver_ats=[source.deliver_at(row) for row in rows],
    )
    builder.set_content_types([source.content_type(row) for row in rows])
    return builder


# --- out of a file


def read_file(name: str, now_ms: int) -> Iterator[CopyBatch]:
    """The messages of a file, except expired ones. An error names the damaged place."""
    if name == STDIO:
        # A buffer of our own: a read of the usual one that never ends would keep its lock from the
        # end of the program.
        raw = getattr(sys.stdin.buffer, "raw", None)
        source = sys.stdin.buffer if raw is None else BufferedReader(raw)
        yield from _json_lines(source, "standard input", now_ms)
    elif name.endswith(JSON_LINES):
        with Path(name).open("rb") as file:
            yield from _json_lines(file, name, now_ms)
    else:
        for batch in _batches(Path(name)):
            for start in range(0, batch.row_count, BATCH):
                rows = range(start, min(batch.row_count, start + BATCH))
                yield CopyBatch(_without_expired(copied(batch, rows), now_ms), len(rows))


def _without_expired(rows: BatchBuilder, now_ms: int) -> BatchBuilder:
    dead = [0 < rows.expiry(row) <= now_ms for row in range(rows.row_count)]
    if not any(dead):
        return rows
    left = BatchBuilder()
    for row, is_dead in enumerate(dead):
        if not is_dead:
            left.extend(rows, row, row + 1)
    return left


def _json_lines(file: BinaryIO, name: str, now_ms: int) -> Iterator[CopyBatch]:
    rows, read, size = BatchBuilder(), 0, 0
    for number, text in enumerate(file, 1):
        if text.strip():
            try:
                found = outgoing(text)
                if "format" in found.keywords:
                    raise InvalidRequest(
                        "a value given with a format must be encoded first; use `flintmq pub -J`"
                    )
                _append(rows, found.value, found.keywords, found.expires_at, now_ms)
            except FlintError as error:
                raise InvalidRequest(f"{name}, line {number:,}: {error}") from None
            read += 1
            size += len(text)
        if read == BATCH or size > READ_BYTES:
            yield CopyBatch(rows, read)
            rows, read, size = BatchBuilder(), 0, 0
    if read:
        yield CopyBatch(rows, read)


def _append(
    rows: BatchBuilder,
    value: bytes,
    keywords: dict[str, Any],
    expires_at: float | None,
    now_ms: int,
) -> None:
    expiry = 0 if expires_at is None else round(expires_at * 1000)
    if 0 < expiry <= now_ms:
        return
    keywords = dict(keywords)
    due = keywords.pop("at", 0)
    rows.append_row(value, expiry=expiry, deliver_at=round(due * 1000), **keywords)


def _batches(path: Path) -> Iterator[RecordBatch]:
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        position = 0
        while position < size:
            data = file.read(HEADER_BYTES)
            if len(data) == HEADER_BYTES and data.startswith(MAGIC):
                fields = HEADER.unpack(data)
                data += file.read(min(fields[7] + padded(fields[8]), size - position))
            try:
                batch, _ = RecordBatch.decode_from(data, 0)
            except (FlintError, struct.error) as error:
                raise Corrupt(f"{path}, byte {position:,}: {error}") from None
            yield batch
            position += len(data)


# --- into a file


Encode = Callable[[Rows], bytes]


class CopySink(NamedTuple):
    """Where messages are written, and in which form."""

    file: BinaryIO
    encode: Encode

    def close(self) -> None:
        if self.file is not sys.stdout.buffer:
            os.fsync(self.file.fileno())
            self.file.close()


def json_lines(rows: Rows) -> bytes:
    return b"".join(line(message) + b"\n" for message in rows)


def record_batches(rows: Rows) -> bytes:
    """Record batches as the topic stores them if read whole, else parts of them."""
    return b"".join(_sealed(part) for run in rows.runs for part in contiguous(run))


def _sealed(run: Run) -> bytes:
    source = run.source
    if isinstance(source, RecordBatch) and run.row_count == source.row_count:
        return bytes(source.encode())
    builder = BatchBuilder(source.base_offset + run.start)
    builder.extend(source, run.start, run.stop)
    return bytes(builder.seal().encode())


def contiguous(run: Run) -> list[Run]:
    """The same rows as ranges without gaps."""
    if run.picks is None:
        return [run]
    parts: list[Run] = []
    for row in run.picks:
        if parts and parts[-1].stop == row:
            parts[-1] = parts[-1]._replace(stop=row + 1)
        else:
            parts.append(run._replace(start=row, stop=row + 1, picks=None))
    return parts


def open_sink(name: str, *, resume: bool, overwrite: bool) -> CopySink:
    if name == STDIO:
        return CopySink(sys.stdout.buffer, json_lines)
    path = Path(name)
    if path.exists() and not (resume or overwrite):
        raise InvalidRequest(
            f"{path} already exists; continue it with --resume, or replace it with --overwrite"
        )
    file = path.open("ab" if resume else "wb", buffering=0)
    return CopySink(file, json_lines if name.endswith(JSON_LINES) else record_batches)


class _Told(msgspec.Struct):
    topic: str
    partition: str
    offset: str


def next_offsets(name: str, topic: str) -> dict[int, int]:
    """Where a file ends, by partition. An incomplete write at its end is cut off."""
    path = Path(name)
    if not path.exists():
        return {}
    return _after_lines(path, topic) if name.endswith(JSON_LINES) else _after_batches(path)


def _after_lines(path: Path, topic: str) -> dict[int, int]:
    found: dict[int, int] = {}
    whole = 0
    decoder = msgspec.json.Decoder(_Told)
    with path.open("r+b") as file:
        for text in file:
            if not text.endswith(b"\n"):
                break
            try:
                told = decoder.decode(text)
            except msgspec.DecodeError as error:
                raise Corrupt(
                    f"{path}, byte {whole:,}: {error}; use --overwrite to start again"
                ) from None
            if told.topic != topic:
                raise InvalidRequest(
                    f"{path} contains messages of {told.topic!r}, not of {topic!r}"
                )
            found[int(told.partition)] = int(told.offset) + 1
            whole += len(text)
        file.truncate(whole)
    return found


def _after_batches(path: Path) -> dict[int, int]:
    found: dict[int, int] = {}
    whole = 0
    try:
        for batch in _batches(path):
            found[0] = batch.base_offset + batch.row_count
            whole += batch.byte_length
    except Corrupt:
        os.truncate(path, whole)
    return found
