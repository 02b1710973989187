"""The state machines on top: registers for clients, and topics whose offsets are given ahead.

Apply is deterministic and refuses nothing. The topic proposer is design section 5 in small: it
keeps a view of the next offset per topic, rebuilt in each term once everything before the term is
applied, and assigns offsets before commit. Over any change of leaders no offset may be given twice
or skipped; `apply` checks exactly that.
"""

from __future__ import annotations

import json
from typing import Any


class OffsetBroken(AssertionError):
    """An offset was assigned twice or skipped."""


class Machine:
    """Commands are JSON lists: [operation id, verb, ...]. A command seen before changes nothing:
    a proposal that was passed on may arrive twice."""

    def __init__(self) -> None:
        self.applied = 0
        self.registers: dict[str, Any] = {}
        self.next_offsets: dict[str, int] = {}
        self.results: dict[int, Any] = {}

    def apply(self, index: int, data: bytes | memoryview) -> tuple[int, Any] | None:
        """The operation's id and result; None for a no-op."""
        self.applied = index
        if not len(data):
            return None
        operation, verb, key, *rest = json.loads(bytes(data))
        if operation not in self.results:
            self.results[operation] = self._perform(verb, key, rest)
        return operation, self.results[operation]

    def _perform(self, verb: str, key: str, rest: list[Any]) -> Any:
        if verb == "put":
            self.registers[key] = rest[0]
            return None
        if verb == "cas":
            expected, value = rest[0], rest[1]
            happened = self.registers.get(key) == expected
            if happened:
                self.registers[key] = value
            return happened
        assert verb == "append"
        base, count = rest[0], rest[1]
        expected_base = self.next_offsets.get(key, 0)
        if base != expected_base:
            raise OffsetBroken(f"topic {key}: offset {base} was assigned, {expected_base} is next")
        self.next_offsets[key] = base + count
        return base

    def to_bytes(self) -> bytes:
        results = sorted(self.results.items())
        state = [self.applied, self.registers, self.next_offsets, results]
        return json.dumps(state, sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Machine:
        machine = cls()
        if data:
            machine.applied, machine.registers, machine.next_offsets, results = json.loads(data)
            machine.results = dict(results)
        return machine


class TopicProposer:
    """Assigns offsets ahead of commit, in one term."""

    def __init__(self, term: int, machine: Machine) -> None:
        self.term = term
        self._next = dict(machine.next_offsets)

    def next_offset(self, topic: str) -> int:
        return self._next.get(topic, 0)

    def assigned(self, topic: str, count: int) -> None:
        """The command was taken into the log; only now does the view move."""
        self._next[topic] = self.next_offset(topic) + count
