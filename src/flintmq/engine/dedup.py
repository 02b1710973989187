"""Which sequence numbers of which producer a topic has seen, and where they went. Pure.

Sequences are any u64, in any order, with gaps. They are kept as runs: a producer that counts up
costs one run, however many messages it has sent.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict, deque
from typing import Any, Generic, TypeVar

from ..errors import InvalidRequest

SEQUENCES_MAX = 100_000
PRODUCERS_MAX = 20_000
"""Every connection is a producer of its own; a broker has 10,000 of them unless told otherwise."""
RUNS_MAX = 500_000
"""What all producers of a topic may take together: who leaves gaps takes a run for each."""


class Window:
    """The last 100,000 sequences of one producer."""

    __slots__ = ("_arrivals", "_count", "_runs", "_sequences_max")

    def __init__(self, sequences_max: int = SEQUENCES_MAX) -> None:
        self._runs: list[list[int]] = []  # [first, behind the last, offset of the first], sorted
        self._arrivals: deque[list[int]] = deque()  # [first, behind the last], oldest first
        self._count = 0
        self._sequences_max = sequences_max

    @property
    def run_count(self) -> int:
        return len(self._runs)

    def find(self, sequence: int, count: int) -> int | None:
        """The offset that these sequences went to, None if they are new.

        Some but not all of them known is an error: a resend is the same as what was sent first.
        """
        at = bisect_right(self._runs, sequence, key=_first) - 1
        if at >= 0 and sequence < self._runs[at][1]:
            first, behind, offset = self._runs[at]
            if sequence + count <= behind:
                return offset + sequence - first
        elif at + 1 == len(self._runs) or self._runs[at + 1][0] >= sequence + count:
            return None
        raise _overlap(sequence, count)

    def add(self, sequence: int, count: int, offset: int) -> None:
        """Remember new sequences; the oldest arrivals make room."""
        at = bisect_right(self._runs, sequence, key=_first)
        before = self._runs[at - 1] if at else None
        if (
            before is not None
            and before[1] == sequence
            and before[2] + before[1] - before[0] == offset
        ):
            before[1] += count
        else:
            self._runs.insert(at, [sequence, sequence + count, offset])
        if self._arrivals and self._arrivals[-1][1] == sequence:
            self._arrivals[-1][1] += count
        else:
            self._arrivals.append([sequence, sequence + count])
        self._count += count
        most = max(self._sequences_max, count)  # all of the last batch, however large it is
        while self._count > most:
            self._forget_oldest(self._count - most)

    def _forget_oldest(self, excess: int) -> None:
        oldest = self._arrivals[0]
        first, behind = oldest[0], min(oldest[1], oldest[0] + excess)
        if behind == oldest[1]:
            self._arrivals.popleft()
        else:
            oldest[0] = behind
        self._count -= behind - first
        while first < behind:
            at = bisect_right(self._runs, first, key=_first) - 1
            run = self._runs[at]
            end = min(behind, run[1])
            rest = [end, run[1], run[2] + end - run[0]]
            keep = [run[0], first, run[2]]
            self._runs[at : at + 1] = [r for r in (keep, rest) if r[0] < r[1]]
            first = end

    def snapshot(self) -> list[Any]:
        # Lengths instead of ends: what is behind the last u64 is none.
        return [
            [[first, behind - first, offset] for first, behind, offset in self._runs],
            [[first, behind - first] for first, behind in self._arrivals],
        ]

    @classmethod
    def restored(cls, snapshot: list[Any]) -> Window:
        window = cls()
        window._runs = [[first, first + count, offset] for first, count, offset in snapshot[0]]
        window._arrivals = deque([first, first + count] for first, count in snapshot[1])
        window._count = sum(behind - first for first, behind in window._arrivals)
        return window


def _first(run: list[int]) -> int:
    return run[0]


def _overlap(sequence: int, count: int) -> InvalidRequest:
    return InvalidRequest(
        f"sequences {sequence} to {sequence + count - 1} overlap with others in part; "
        "a resend must be the same batch"
    )


T = TypeVar("T")


class Flying(Generic[T]):
    """Sequences that are decided and not yet applied, by producer, and who answers for each."""

    def __init__(self) -> None:
        self._by_producer: dict[str, _Ranges[T]] = {}

    def find(self, producer: str, sequence: int, count: int) -> T | None:
        """Who answers for just these sequences; None if they are new. See Window.find."""
        ranges = self._by_producer.get(producer)
        # Who counts up, as producers do, is beyond all that is on its way: nothing to look for.
        if ranges is None or sequence >= ranges.end:
            return None
        for first, (length, item) in ranges.held.items():
            if first < sequence + count and sequence < first + length:
                if (first, length) == (sequence, count):
                    return item
                raise _overlap(sequence, count)
        return None

    def add(self, producer: str, sequence: int, count: int, item: T) -> None:
        ranges = self._by_producer.get(producer)
        if ranges is None:
            ranges = self._by_producer[producer] = _Ranges()
        ranges.held[sequence] = (count, item)
        ranges.end = max(ranges.end, sequence + count)

    def remove(self, producer: str, sequence: int) -> None:
        ranges = self._by_producer.get(producer)
        if ranges is not None:
            ranges.held.pop(sequence, None)
            if not ranges.held:
                del self._by_producer[producer]


class _Ranges(Generic[T]):
    __slots__ = ("end", "held")

    def __init__(self) -> None:
        self.held: dict[int, tuple[int, T]] = {}
        self.end = 0
        """Behind the highest that was ever among them."""


class Producers:
    """The windows of a topic's producers; who has been quiet longest is forgotten first."""

    def __init__(self, producers_max: int = PRODUCERS_MAX) -> None:
        self._windows: OrderedDict[str, Window] = OrderedDict()
        self._producers_max = producers_max
        self._runs = 0

    def find(self, producer: str, sequence: int, count: int) -> int | None:
        window = self._windows.get(producer)
        return None if window is None else window.find(sequence, count)

    def add(self, producer: str, sequence: int, count: int, offset: int) -> None:
        window = self._windows.get(producer)
        if window is None:
            window = self._windows[producer] = Window()
            if len(self._windows) > self._producers_max:
                self._forget_quietest()
        else:
            self._windows.move_to_end(producer)
        before = window.run_count
        window.add(sequence, count, offset)
        self._runs += window.run_count - before
        while self._runs > RUNS_MAX and len(self._windows) > 1:
            self._forget_quietest()

    def _forget_quietest(self) -> None:
        self._runs -= self._windows.popitem(last=False)[1].run_count

    def snapshot(self) -> list[tuple[str, list[Any]]]:
        return [(producer, window.snapshot()) for producer, window in self._windows.items()]

    def restore(self, snapshot: list[tuple[str, list[Any]]]) -> None:
        self._windows = OrderedDict(
            (producer, Window.restored(window)) for producer, window in snapshot
        )
        self._runs = sum(window.run_count for window in self._windows.values())

    def __bool__(self) -> bool:
        return bool(self._windows)
