"""Which queues are bound to which exchanges, known to every process: a compacted topic."""

from __future__ import annotations

import json

from .latest import LatestValues
from .shared import SharedClient

TOPIC = "celery-bindings"

Bound = tuple[str, str | None, str]
"""Routing key, pattern (of a topic exchange) and queue, as kombu keeps it."""


class Bindings:
    """Read only where what this process has bound itself does not say enough."""

    def __init__(self, shared: SharedClient) -> None:
        self._shared = shared
        self._latest = LatestValues(shared.client, TOPIC)
        self._added: set[str] = set()

    def add(self, exchange: str, bound: Bound) -> None:
        key = json.dumps([exchange, *bound])
        if key not in self._added:
            if self._shared.run(self._latest.get, key, newest=True) is None:
                self._shared.run(self._latest.put, key, key.encode())
            self._added.add(key)

    def remove(self, exchange: str, bound: Bound) -> None:
        key = json.dumps([exchange, *bound])
        self._added.discard(key)
        self._shared.run(self._latest.remove, key)

    def table(self, exchange: str) -> list[Bound]:
        """What is bound to an exchange now."""
        found = [json.loads(one) for one in self._shared.run(self._latest.values, newest=True)]
        return [(one[1], one[2], one[3]) for one in found if one[0] == exchange]

    def close(self) -> None:
        if not self._shared.is_closed:
            self._shared.run(self._latest.close)
