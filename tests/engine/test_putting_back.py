"""What a reader of a name was handed and gives back unread: only that, and only while it has it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from flintmq.broker_api import ReaderOpening
from flintmq.client.client import Client
from flintmq.engine.broker import Broker
from flintmq.engine.leading.readers import LeadingReader
from flintmq.serde.codec import Codec


class Pair:
    """Two readers of one name, of a topic with ten messages; the first was handed all of them."""

    def __init__(self) -> None:
        self.broker = Broker()
        self.first: LeadingReader
        self.second: LeadingReader

    async def open(self) -> Pair:
        mq = await Client(self.broker, Codec(), auto_create=True, timeout=30)
        await mq.publish_batch("t", [b"%d" % number for number in range(10)])
        self.first, self.second = await self._reader(), await self._reader()
        assert len(self.first.take(10)) == 10
        return self

    async def _reader(self) -> LeadingReader:
        return await self.broker.open_reader(
            ReaderOpening("t", name="n", start=None, filter=None, auto_create=False)
        )

    async def left(self) -> list[int | None]:
        """What the second gets, if there is to be anything."""
        rows = self.second.take(20) if await self.second.lag() else ()
        return [message.offset for message in rows]


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    made = await Pair().open()
    yield made
    await made.broker.close()


async def test_what_is_put_back_goes_to_the_next(pair: Pair) -> None:
    pair.first.put_back(8, 10)
    pair.first.put_back(3, 5)

    assert await pair.left() == [3, 4]
    assert await pair.left() == [8, 9]
    assert await pair.left() == []


async def test_a_seek_of_the_name_is_not_undone_by_what_is_put_back(pair: Pair) -> None:
    await pair.second.seek("latest")
    pair.first.put_back(5, 10)

    assert await pair.second.position() == 10
    assert await pair.left() == []


async def test_what_is_committed_is_not_put_back(pair: Pair) -> None:
    await pair.second.commit(7)
    pair.first.put_back(5, 9)

    assert await pair.left() == [7, 8]


@pytest.mark.parametrize("never", [(10, 10**9), (-(2**40), 0), (2**62, 2**64), (9, 3)])
async def test_what_a_reader_never_had_is_not_put_back(pair: Pair, never: tuple[int, int]) -> None:
    pair.first.put_back(*never)

    assert await pair.second.lag() == 0, "whoever reads that would look for it without end"
    assert await pair.second.position() == 10
