"""FlintMQ in a Django project: one connection for each process, and a transactional outbox.

INSTALLED_APPS = [..., "flintmq.adapters.django"]
FLINTMQ = {"url": "flint://localhost:7600"}
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from threading import Lock
from typing import Any

from ...batch import HeaderValue
from ...client.blocking import BlockingClient, connect_sync
from ...client.client import Client
from ...client.values import Value
from ...errors import InvalidRequest, MissingExtra
from ..outbox import AT_ONCE, OutboxRow, Row, RowMaker, relay_rows

try:
    from django.conf import settings
    from django.db import close_old_connections, connections, router
except ImportError as error:
    raise MissingExtra("flintmq.adapters.django", "django") from error

_connected: dict[int, BlockingClient] = {}
_lock = Lock()
_rows = RowMaker()


def connecting() -> dict[str, Any]:
    """What the project's settings say: the keywords of `flintmq.connect`."""
    said = getattr(settings, "FLINTMQ", {})
    if not isinstance(said, dict) or not all(isinstance(name, str) for name in said):
        raise InvalidRequest(
            "settings.FLINTMQ must be a dict with keywords of flintmq.connect, for example "
            f'{{"url": "flint://localhost:7600"}}; not {said!r}'
        )
    return said


def get_mq() -> BlockingClient:
    """The connection of this process, made when it is first needed and closed at its end."""
    with _lock:
        mq = _connected.get(os.getpid())
        if mq is None:
            _connected.clear()  # of the process this one was forked off
            mq = _connected[os.getpid()] = connect_sync(**connecting())
        return mq


def publish(
    topic: str,
    value: Value,
    *,
    key: str | None = None,
    headers: Mapping[str, HeaderValue] | None = None,
    priority: int = 0,
    using: str | None = None,
) -> None:
    """Add a message to the current transaction: bytes, str, or what JSON can write. It is published
    by `manage.py flintmq_relay` once that has committed, and never if it has not."""
    from .models import OutboxMessage

    row = _rows.row(topic, value, key, headers, priority)
    OutboxMessage.objects.using(using or router.db_for_write(OutboxMessage)).create(
        **{name: getattr(row, name) for name in _FIELDS}
    )


async def relay(mq: Client, *, once: bool = False, using: str | None = None) -> int:
    """Publish what was committed, until the task is cancelled; with `once`, what is there now."""
    return await relay_rows(mq, _DjangoDatabase(using), once=once)


class _DjangoDatabase:
    def __init__(self, using: str | None) -> None:
        from .models import OutboxMessage

        self._alias = using or router.db_for_write(OutboxMessage)
        self._rows = OutboxMessage.objects.using(self._alias)

    def oldest(self) -> list[Row]:
        close_old_connections()
        return [
            (one.pk, OutboxRow(**{name: getattr(one, name) for name in _FIELDS}))
            for one in self._rows.order_by("pk")[:AT_ONCE]
        ]

    def delete(self, ids: list[Any]) -> None:
        self._rows.filter(pk__in=ids).delete()

    def close(self) -> None:
        connections[self._alias].close()


_FIELDS = OutboxRow.__struct_fields__
