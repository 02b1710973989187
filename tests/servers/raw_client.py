"""A client that says what it is told to: one frame, and what comes back for it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from flintmq.net.wire.frames import Frame, FrameDecoder, encode_frame
from flintmq.net.wire.hello import HELLO_BYTES, client_hello
from flintmq.net.wire.operations import Control, Fault, Op, OpenRequest, encode


class RawClient:
    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._decoder = FrameDecoder(1 << 24)
        self._frames: list[Frame] = []
        self._id = 0

    async def __aenter__(self) -> RawClient:
        self._reader, self._writer = await asyncio.open_connection(*self._address)
        self._writer.write(client_hello())
        await self._reader.readexactly(HELLO_BYTES)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def open(self, key: str | None) -> Frame:
        return await self.ask(Op.OPEN, OpenRequest(auth=None if key is None else ["key", key]))

    async def ask(self, op: int, control: Control | Any, batches: Sequence[bytes] = ()) -> Frame:
        """Its answer; or what was said of the connection as a whole."""
        self._id += 1
        parts = encode_frame(op, self._id, encode(control), batches)
        self._writer.write(b"".join(parts))
        while True:
            while self._frames:
                frame = self._frames.pop(0)
                if frame.id == self._id or (frame.op in (Op.ERROR, Op.RECEIPTS) and not frame.id):
                    return frame
            data = await asyncio.wait_for(self._reader.read(65_536), 60)
            if not data:
                raise ConnectionError("the broker has closed the connection")
            self._frames += self._decoder.feed(data)

    async def is_closed(self) -> bool:
        return await asyncio.wait_for(self._reader.read(1), 60) == b""


def kind_of(frame: Frame) -> str:
    """The name of the error, or REPLY."""
    if frame.op in (Op.REPLY, Op.RECEIPTS):
        return Op(frame.op).name
    return msgspec.msgpack.decode(frame.control, type=Fault).kind


def value_of(frame: Frame) -> Any:
    return msgspec.msgpack.decode(frame.control)
