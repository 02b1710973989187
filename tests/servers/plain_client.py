"""A second client, written from docs/reference/protocol.md alone: plain sockets, no FlintMQ code.

Batches are made and read by hand too, for messages that are nothing but their value.
"""

from __future__ import annotations

import socket
import struct
from itertools import accumulate, pairwise
from typing import Any

import msgspec
from fastcrc.crc32 import iscsi as crc32c

HEADER = struct.Struct("<IBBHQQII")
BATCH = struct.Struct("<4sBBBBIIIIIIQqqII")


class PlainClient:
    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=60)
        self._socket.sendall(struct.pack("<4sBBHQ", b"FLNT", 1, 1, 0, 0))
        assert self._read(16) == struct.pack("<4sBBHQ", b"FLNT", 1, 1, 0, 0)
        self._id = 0
        self.opened = self.ask(1, [None, 0, None, "plain"])[0]

    def publish(self, topic: str, values: list[bytes]) -> list[Any]:
        outcomes, _ = self.ask(16, [topic], encode_batch(values))
        assert isinstance(outcomes[0], list)
        return outcomes[0]

    def reader(self, topic: str, name: str | None = None) -> int:
        stream: int = self.ask(48, [topic, name, "earliest"])[0][0]
        return stream

    def take(self, stream: int, max_rows: int, timeout: float) -> list[tuple[int, bytes]]:
        (runs, *_), batches = self.ask(50, [stream, max_rows, timeout])
        rows = []
        for _topic, _partition, start, stop, picks in runs:
            base, values, batches = decode_batch(batches)
            rows += [(base + row, values[row]) for row in picks or range(start, stop)]
        assert batches == b""
        return rows

    def close(self) -> None:
        self.ask(4, [])
        assert self._socket.recv(1) == b""
        self._socket.close()

    # --- frames

    def ask(self, op: int, control: list[Any], batches: bytes = b"") -> tuple[Any, bytes]:
        self._id += 1
        packed = msgspec.msgpack.encode(control)
        body = packed + bytes(-len(packed) & 7) + batches
        length = HEADER.size - 4 + len(body)
        self._socket.sendall(HEADER.pack(length, op, 0, 0, self._id, 0, len(packed), 0) + body)
        while True:
            got, id, answer, rest = self._frame()
            if id == self._id:
                assert got == 128, answer
                return answer, rest

    def _frame(self) -> tuple[int, int, Any, bytes]:
        head = self._read(HEADER.size)
        length, op, _, _, id, _, control, _ = HEADER.unpack(head)
        body = self._read(length - HEADER.size + 4)
        return op, id, msgspec.msgpack.decode(body[:control]), body[(control + 7) & ~7 :]

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self._socket.recv(count - len(data))
            assert part, "the broker has closed the connection"
            data += part
        return data


# --- record batches (src/flintmq/batch/format.py)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) & 7)


def encode_batch(values: list[bytes]) -> bytes:
    offsets = struct.pack(f"<{len(values) + 1}i", *accumulate(map(len, values), initial=0))
    payload = _padded(offsets) + _padded(b"".join(values))
    decided = struct.pack(
        "<4sBBBBIIIIIQ", b"FMQB", 1, 1, 0, 0, 0, len(values), 0, len(payload), len(payload), 0
    )
    checksum = crc32c(payload, crc32c(decided))
    head = BATCH.pack(
        b"FMQB", 1, 1, 0, 0, 0, len(values), 0, len(payload), len(payload), checksum, 0, -1, 0, 0, 0
    )[:-4]
    return head + struct.pack("<I", crc32c(head)) + payload


def decode_batch(data: bytes) -> tuple[int, list[bytes], bytes]:
    fields = BATCH.unpack_from(data)
    rows, control, payload, base = fields[6], fields[7], fields[8], fields[12]
    assert fields[3] == 0, "not compressed"
    at = BATCH.size + control
    offsets = struct.unpack_from(f"<{rows + 1}i", data, at)
    start = at + ((4 * (rows + 1) + 7) & ~7)
    values = [data[start + first : start + last] for first, last in pairwise(offsets)]
    return base, values, data[at + ((payload + 7) & ~7) :]
