"""Could one copy, used by one caller at a time, have given these answers?

The search that Porcupine uses, with a memory of visited states: walk through the calls and
returns in order, try each call that is open as the next to take effect, and
go back when a return is met whose call could not take effect in time. Histories are judged key by
key. Pure: a history in, a verdict out.

A call whose outcome is unknown may have taken effect at any later time, or never; it simply never
returns.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

NEVER = 2**62


@dataclass(frozen=True, slots=True)
class Operation:
    """One call of one client. `called` and `returned` are positions in one global order."""

    key: str
    action: tuple[Any, ...]
    called: int
    returned: int = NEVER
    result: Any = None

    def is_unknown(self) -> bool:
        return self.returned >= NEVER


State = Hashable
# (state, action, result, unknown) -> the state after, or None when the result is impossible.
Model = Callable[[Any, tuple[Any, ...], Any, bool], tuple[Any] | None]


def register(state: Any, action: tuple[Any, ...], result: Any, unknown: bool) -> tuple[Any] | None:
    """A cell with put, get and compare-and-set."""
    match action:
        case ("put", value):
            return (value,)
        case ("get",):
            return (state,) if unknown or result == state else None
        case ("cas", expected, value):
            happened = state == expected
            if not unknown and result != happened:
                return None
            return (value,) if happened else (state,)
    raise ValueError(f"not an action of a register: {action!r}")


def append_log(
    state: Any, action: tuple[Any, ...], result: Any, unknown: bool
) -> tuple[Any] | None:
    """A log that tells each append the offset it got. The state is the next offset."""
    match action:
        case ("append", count):
            return (state + count,) if unknown or result == state else None
    raise ValueError(f"not an action of a log: {action!r}")


def is_linearizable(
    history: Sequence[Operation], model: Model = register, initial: State = None
) -> bool:
    """The verdict over all keys."""
    keys = sorted({operation.key for operation in history})
    return all(_check([op for op in history if op.key == key], model, initial) for key in keys)


class _Node:
    """One call or return in a linked list from which tried operations are lifted out."""

    __slots__ = ("match", "next", "number", "operation", "previous")

    def __init__(self, operation: Operation, number: int) -> None:
        self.operation = operation
        self.number = number
        self.match: _Node | None = None  # the return that belongs to this call; None for a return
        self.next: _Node | None = None
        self.previous: _Node | None = None

    def lift(self) -> None:
        for node in (self, self.match):
            if node is not None and node.previous is not None:
                node.previous.next = node.next
                if node.next is not None:
                    node.next.previous = node.previous

    def put_back(self) -> None:
        for node in (self.match, self):
            if node is not None and node.previous is not None:
                node.previous.next = node
                if node.next is not None:
                    node.next.previous = node


def _linked(operations: list[Operation]) -> _Node:
    events: list[tuple[int, int, _Node]] = []
    for number, operation in enumerate(operations):
        call, back = _Node(operation, number), _Node(operation, number)
        call.match = back
        events.append((operation.called, number, call))
        # Calls that never return sort behind everything, in a fixed order.
        events.append((operation.returned, number, back))
    events.sort(key=lambda event: (event[0], event[1]))
    head = _Node(Operation("", (), 0), -1)
    last = head
    for _, _, node in events:
        last.next, node.previous = node, last
        last = node
    return head


def _check(operations: list[Operation], model: Model, initial: State) -> bool:
    """Depth first, without recursion: histories are longer than Python's stack."""
    known = sum(1 for operation in operations if not operation.is_unknown())
    head = _linked(operations)
    state, taken, done = initial, 0, 0
    seen: set[tuple[int, State]] = set()
    trail: list[tuple[_Node, State]] = []
    node = head.next
    while done < known:
        assert node is not None
        if node.match is not None:  # a call: try it as the next to take effect
            operation = node.operation
            after = model(state, operation.action, operation.result, operation.is_unknown())
            step = taken | 1 << node.number
            if after is not None and (step, after[0]) not in seen:
                seen.add((step, after[0]))
                trail.append((node, state))
                state, taken = after[0], step
                done += not operation.is_unknown()
                node.lift()
                node = head.next
            else:
                node = node.next
        else:  # a return whose call has not taken effect: one of the earlier choices was wrong
            if not trail:
                return False
            node, state = trail.pop()
            taken &= ~(1 << node.number)
            done -= not node.operation.is_unknown()
            node.put_back()
            node = node.next
    return True
