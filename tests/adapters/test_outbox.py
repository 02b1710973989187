"""The transactional outbox of SQLAlchemy: the row and the message commit together."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

import flintmq
from flintmq.adapters.outbox import RowMaker
from flintmq.adapters.sqlalchemy import Outbox
from flintmq.errors import EncodeFailed, InvalidRequest
from tests.patience import until
from tests.serving import serving

from .processes import ran, started

METADATA: Any = sa.MetaData()
ORDERS = sa.Table("orders", METADATA, sa.Column("id", sa.Integer, primary_key=True))
OUTBOX = Outbox(METADATA)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Any]:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    METADATA.create_all(engine)
    yield engine
    engine.dispose()


def order(engine: Any, *numbers: int) -> None:
    with Session(engine) as session, session.begin():
        for number in numbers:
            session.execute(ORDERS.insert().values(id=number))
            OUTBOX.add(session, "orders", {"id": number}, key=str(number))


async def published(mq: flintmq.Client) -> list[Any]:
    async with mq.reader("orders") as reader:
        return [one.decode() for one in await reader.read_batch(10_000, timeout=0)]


async def test_what_is_committed_is_published_as_it_was_said(
    engine: Any, flint: flintmq.Client
) -> None:
    with Session(engine) as session, session.begin():
        said: dict[str, Any] = {"key": "k", "headers": {"region": "eu"}, "priority": 3}
        OUTBOX.add(session, "orders", {"id": 1}, **said)
        OUTBOX.add(session, "orders", "text")
        OUTBOX.add(session, "orders", b"\x00\xff")
    with engine.begin() as connection:
        connection.execute(OUTBOX.insert("orders", [1, 2]))

    assert await OUTBOX.relay(engine, flint, once=True) == 4
    assert await published(flint) == [{"id": 1}, "text", b"\x00\xff", [1, 2]]
    async with flint.reader("orders") as reader:
        first = await reader.read()
    assert (first.key, first.headers, first.priority) == ("k", {"region": "eu"}, 3)
    assert await OUTBOX.relay(engine, flint, once=True) == 0


async def test_what_is_rolled_back_is_never_published(engine: Any, flint: flintmq.Client) -> None:
    order(engine, 1)
    with pytest.raises(sa.exc.IntegrityError):
        order(engine, 1)

    assert await OUTBOX.relay(engine, flint, once=True) == 1


async def test_what_was_published_and_not_deleted_is_not_published_twice(
    engine: Any, flint: flintmq.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    order(engine, *range(300))
    with monkeypatch.context() as patched:

        def fail(database: Any, ids: list[Any]) -> None:
            raise OSError("the power is gone")

        patched.setattr("flintmq.adapters.sqlalchemy._SqlDatabase.delete", fail)
        with pytest.raises(OSError, match="power"):
            await OUTBOX.relay(engine, flint, once=True)
    assert len(await published(flint)) == 256

    await asyncio.gather(*(OUTBOX.relay(engine, flint, once=True) for _ in range(2)))
    assert await published(flint) == [{"id": number} for number in range(300)]


async def test_a_message_that_cannot_be_published_stays_and_holds_up_no_other(
    engine: Any, flint: flintmq.Client
) -> None:
    await flint.create_topic("orders", max_message_bytes=100)
    with Session(engine) as session, session.begin():
        OUTBOX.add(session, "orders", "x" * 1000)
        OUTBOX.add(session, "orders", "y")

    with pytest.raises(InvalidRequest, match="1 messages of the outbox could not"):
        await OUTBOX.relay(engine, flint, once=True)
    assert await published(flint) == ["y"]
    await flint.configure_topic("orders", max_message_bytes=None)
    assert await OUTBOX.relay(engine, flint, once=True) == 1


async def test_a_relay_goes_on_until_it_is_cancelled(engine: Any, flint: flintmq.Client) -> None:
    relaying = asyncio.create_task(OUTBOX.relay(engine, flint))
    order(engine, 1)

    async def is_published() -> bool:
        return "orders" in await flint.topics() and await published(flint) == [{"id": 1}]

    await until(is_published, "it was not published")
    relaying.cancel()
    await asyncio.gather(relaying, return_exceptions=True)


def test_what_no_message_can_be_is_refused_before_the_transaction_has_it() -> None:
    with pytest.raises(EncodeFailed, match="object"):
        OUTBOX.insert("orders", object())
    with pytest.raises(InvalidRequest, match="priority"):
        OUTBOX.insert("orders", 1, priority=9)
    key: Any = b"k"
    with pytest.raises(InvalidRequest, match="must be a str"):
        OUTBOX.insert("orders", 1, key=key)


def test_a_child_that_is_forked_off_makes_rows_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    maker = RowMaker()
    first = maker.row("orders", 1, None, None, 0)
    second = maker.row("orders", 1, None, None, 0)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    child = maker.row("orders", 1, None, None, 0)

    assert (first.producer, first.sequence + 1) == (second.producer, second.sequence)
    assert child.producer != first.producer


RELAY = """
import asyncio, os, signal, sys
import sqlalchemy as sa
import flintmq
from flintmq.adapters import sqlalchemy as adapter
from flintmq.adapters.sqlalchemy import Outbox

metadata = sa.MetaData()
outbox = Outbox(metadata)
engine = sa.create_engine("sqlite:///shop.db")
adapter.AT_ONCE = 16
kills = int(os.environ.get("KILL_AFTER", "-1"))
delete = adapter._SqlDatabase.delete

def delete_or_die(self, ids):
    global kills
    if kills == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    kills -= 1
    delete(self, ids)

adapter._SqlDatabase.delete = delete_or_die

async def main():
    async with flintmq.connect(os.environ["BROKER"]) as mq:
        print(await outbox.relay(engine, mq, once=True))

asyncio.run(main())
"""


@pytest.mark.slow
async def test_a_relay_that_is_killed_doubles_and_loses_nothing(
    engine: Any, tmp_path: Path
) -> None:
    (tmp_path / "relay.py").write_text(RELAY)
    with serving(tmp_path / "data") as url:
        for rounds in range(3):
            order(engine, *range(40 * rounds, 40 * rounds + 40))
            command = [sys.executable, "relay.py"]
            with started(
                command, tmp_path, log="log", BROKER=url, KILL_AFTER=str(rounds % 2)
            ) as relay:
                assert relay.wait(60) == -9
        ran(command, tmp_path, BROKER=url)

        async with flintmq.connect(url) as mq:
            found = [one["id"] for one in await published(mq)]
            assert found == list(range(120))
