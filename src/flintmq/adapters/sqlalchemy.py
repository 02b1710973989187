"""A transactional outbox for SQLAlchemy: the row and the message commit together.

outbox = Outbox(Base.metadata)

with Session(engine) as session, session.begin():
    session.add(order)
    outbox.add(session, "orders", {"id": order.id}, key="42")
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..batch import HeaderValue
from ..client.client import Client
from ..client.values import Value
from ..errors import MissingExtra
from .outbox import AT_ONCE, OutboxRow, Row, RowMaker, relay_rows

try:
    import sqlalchemy as sa
except ImportError as error:
    raise MissingExtra("flintmq.adapters.sqlalchemy", "sqlalchemy") from error

TABLE = "flintmq_outbox"


class SqlOutbox:
    """A table of your metadata: `create_all` and Alembic make it with yours."""

    def __init__(self, metadata: sa.MetaData, table: str = TABLE) -> None:
        self.table = sa.Table(
            table,
            metadata,
            sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
            sa.Column("producer", sa.String(32), nullable=False),
            sa.Column("sequence", sa.BigInteger, nullable=False),
            sa.Column("topic", sa.String(255), nullable=False),
            sa.Column("format", sa.String(8), nullable=False),
            sa.Column("value", sa.LargeBinary, nullable=False),
            sa.Column("key", sa.Text),
            sa.Column("headers", sa.Text),
            sa.Column("priority", sa.SmallInteger, nullable=False),
        )
        self._rows = RowMaker()

    def insert(
        self,
        topic: str,
        value: Value,
        *,
        key: str | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
        priority: int = 0,
    ) -> sa.Insert:
        """The statement that adds a message: for connections and AsyncSession.execute."""
        row = self._rows.row(topic, value, key, headers, priority)
        return self.table.insert().values({name: getattr(row, name) for name in _FIELDS})

    def add(
        self,
        session: Any,
        topic: str,
        value: Value,
        *,
        key: str | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
        priority: int = 0,
    ) -> None:
        """Add a message to the transaction of a Session or Connection: bytes, str, or what JSON can
        write. It is published once that has committed, and never if it has not."""
        session.execute(self.insert(topic, value, key=key, headers=headers, priority=priority))

    async def relay(self, engine: sa.Engine, mq: Client, *, once: bool = False) -> int:
        """Publish what was committed, until the task is cancelled; with `once`, what is there now.

        Any number of relays may run. The database is read in a thread.
        """

        return await relay_rows(mq, _SqlDatabase(engine, self.table), once=once)


class _SqlDatabase:
    def __init__(self, engine: sa.Engine, table: sa.Table) -> None:
        self._engine, self._table = engine, table

    def oldest(self) -> list[Row]:
        query = sa.select(self._table).order_by(self._table.c.id).limit(AT_ONCE)
        with self._engine.connect() as connection:
            return [
                (row.id, OutboxRow(**{name: getattr(row, name) for name in _FIELDS}))
                for row in connection.execute(query)
            ]

    def delete(self, ids: list[Any]) -> None:
        with self._engine.begin() as connection:
            connection.execute(self._table.delete().where(self._table.c.id.in_(ids)))

    def close(self) -> None:
        """The engine is not ours."""


_FIELDS = OutboxRow.__struct_fields__
Outbox = SqlOutbox
