"""Definitions: small named values that belong to a topic and are kept with it, as webhooks are.

Always true: versions only grow, and no two definitions ever had the same one. Whoever changes a
definition by its version relies on that.
"""

from __future__ import annotations

from collections.abc import Callable

from ...model import Definition
from ..commands import Define


class Definitions:
    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str], Definition] = {}
        self.last_version = 0
        self.byte_count = 0
        self.on_change: list[Callable[[str], object]] = []
        """Called with the kind of what has changed, whether this node leads or follows."""

    def of(self, kind: str, topic: str | None = None) -> list[Definition]:
        """Of one topic or of all, by topic and name."""
        found = (one for one in self._found.values() if one.kind == kind)
        return sorted(
            (one for one in found if topic is None or one.topic == topic),
            key=lambda one: (one.topic, one.name),
        )

    def get(self, kind: str, topic: str, name: str) -> Definition | None:
        return self._found.get((kind, topic, name))

    def all(self) -> list[Definition]:
        return list(self._found.values())

    def apply(self, command: Define) -> None:
        self.last_version = max(self.last_version, command.version)
        self._remove(command.kind, command.topic, command.name)
        if command.value is not None:
            self._add(
                Definition(
                    command.kind, command.topic, command.name, command.value, command.version
                )
            )
        self._tell({command.kind})

    def topics_gone(self, topics: set[str]) -> None:
        """What belongs to a topic goes with it."""
        gone = [one for one in self._found.values() if one.topic in topics]
        for one in gone:
            self._remove(one.kind, one.topic, one.name)
        self._tell({one.kind for one in gone})

    def restore(self, definitions: list[Definition], last_version: int) -> None:
        self._found.clear()
        self.byte_count, self.last_version = 0, last_version
        for one in definitions:
            self._add(one)
        self._tell({one.kind for one in definitions})

    def clear(self) -> None:
        kinds = {one.kind for one in self._found.values()}
        self._found.clear()
        self.byte_count = self.last_version = 0
        self._tell(kinds)

    def _add(self, one: Definition) -> None:
        self._found[one.kind, one.topic, one.name] = one
        self.byte_count += len(one.value)

    def _remove(self, kind: str, topic: str, name: str) -> None:
        found = self._found.pop((kind, topic, name), None)
        if found is not None:
            self.byte_count -= len(found.value)

    def _tell(self, kinds: set[str]) -> None:
        for kind in sorted(kinds):
            for tell in self.on_change:
                tell(kind)
