"""The bare loop beside every broker: `python -m benchmarks.peers.echo PORT FILE`.

    0      1                5
    +------+----------------+
    | kind | bytes a message|   u32 big-endian; answered with one byte
    +------+----------------+

A connection begins with that, and its kind says what it wants: A, a byte back for each message; S,
the same after what was read is written and synced; E, the bytes themselves; L, what others send; F,
to be sent on to those. It knows no topics and keeps nothing: no broker does less.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import cast

import uvloop

FILE_BYTES = 64 << 20


class Disk:
    """A file written with zeros beforehand, so that a sync has no sizes to note."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT)
        for at in range(0, FILE_BYTES, 1 << 20):
            os.pwrite(self._file, bytes(1 << 20), at)
        os.fsync(self._file)
        self._at = 0

    def write(self, data: bytes) -> None:
        if self._at + len(data) > FILE_BYTES:
            self._at = 0
        os.pwrite(self._file, data, self._at)
        os.fdatasync(self._file)
        self._at += len(data)


class Echo(asyncio.Protocol):
    def __init__(self, disk: Disk, listeners: list[asyncio.Transport]) -> None:
        self._disk, self._listeners = disk, listeners
        self._size = 0
        self._kind = b""
        self._got = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, error: Exception | None) -> None:
        if self._transport in self._listeners:
            self._listeners.remove(self._transport)

    def data_received(self, data: bytes) -> None:
        if not self._kind:
            self._kind, size, data = data[:1], data[1:5], data[5:]
            self._size = int.from_bytes(size)
            if self._kind == b"L":
                self._listeners.append(self._transport)
            self._transport.write(b"+")
            if not data:
                return
        if self._kind == b"F":
            for one in self._listeners:
                one.write(data)
            return
        if self._kind == b"S":
            self._disk.write(data)
        if self._kind == b"E":
            self._transport.write(data)
            return
        before = self._got // self._size
        self._got += len(data)
        self._transport.write(b"." * (self._got // self._size - before))


async def serve(port: int, path: str) -> None:
    disk = Disk(path)
    listeners: list[asyncio.Transport] = []
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Echo(disk, listeners), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(int(sys.argv[1]), sys.argv[2]))
