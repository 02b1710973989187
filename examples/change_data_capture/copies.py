"""Builds a copy of the table from its changes; then counts the changes, by replaying them."""

import asyncio
import tempfile
from collections import Counter
from typing import Any

import sqlalchemy as sa
from customers import Base, Customer, outbox
from sqlalchemy.orm import Session

import flintmq


async def changes(mq: flintmq.Client) -> list[dict[str, Any]]:
    """All changes, from the first one on."""
    async with mq.reader("customers") as reader:
        return [message.decode() for message in await reader.read_batch(1000, timeout=1)]


async def main(directory: str) -> None:
    engine = sa.create_engine(f"sqlite:///{directory}/shop.db")
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all(Customer(id=number, city="Bonn") for number in range(1, 4))
        session.commit()
        session.get_one(Customer, 1).city = "Kiel"
        session.delete(session.get_one(Customer, 2))
        session.commit()
        session.get_one(Customer, 3).city = "never"
        session.flush()
        session.rollback()  # what is not committed is no change

    async with flintmq.connect() as mq:
        print("published:", await outbox.relay(engine, mq, once=True))
        copy: dict[int, str] = {}
        for change in await changes(mq):
            if change["kind"] == "put":
                copy[change["id"]] = change["city"]
            else:
                del copy[change["id"]]
        print("copy:", copy)
        print("changes by city:", dict(Counter(one["city"] for one in await changes(mq))))
    engine.dispose()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(main(directory))
