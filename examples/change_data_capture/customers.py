"""A table of customers. Each change becomes a message, in the same transaction."""

from sqlalchemy import event
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from flintmq.adapters.sqlalchemy import Outbox


class Base(DeclarativeBase):
    pass


class Customer(Base):
    __tablename__ = "customers"
    id: Mapped[int] = mapped_column(primary_key=True)
    city: Mapped[str]


outbox = Outbox(Base.metadata)


@event.listens_for(Session, "after_flush")
def capture(session: Session, _: object) -> None:
    for kind, rows in (("put", [*session.new, *session.dirty]), ("delete", [*session.deleted])):
        for row in rows:
            if isinstance(row, Customer):
                change = {"kind": kind, "id": row.id, "city": row.city}
                outbox.add(session, "customers", change, key=str(row.id))
