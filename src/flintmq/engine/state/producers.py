"""Which sequence numbers of which producer a topic has seen, and where they went. Pure.

Sequences are any u64, in any order, with gaps. They are kept as runs: a producer that counts up
costs one run, however many messages it has sent.

`Remembered` bounds the windows of all topics together, by age and by bytes. What it forgets follows
from what was added and from the times that came with it: replicas that apply the same commands
forget the same.

Always true: a sequence is in at most one run of its window, and what a window has was appended at
the offset it says: `TopicView.known` relies on that to answer a repeat instead of taking it twice.
Windows are in the order of their last use, which is what is forgotten first; `Remembered.time_ms`
never goes back; its `bytes` are those of all topics together.

As they are stored, a window behind the other, little-endian:

    runs u32   arrivals u32   length of the name u32   name (UTF-8)   last use, ms u64
    runs times       first sequence u64   how many u64   offset of the first u64
    arrivals times   first sequence u64   how many u64      oldest first; none where each came
                                                            behind the one before
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from struct import Struct
from typing import Any, NamedTuple

from ...errors import InvalidRequest
from .constants import PARTED_BYTES, SEQUENCES_MAX, SMALL_RUNS, WINDOW_BYTES

PRODUCER_SECONDS = 7 * 86_400.0
"""How long a producer is remembered after it has published to a topic for the last time."""
PRODUCER_BYTES = 64 * 1024 * 1024
"""What all that is remembered of producers may take, in all topics together."""

_HEAD = Struct("<III")
_TIME = Struct("<Q")
_RUN = Struct("<QQQ")
_ARRIVAL = Struct("<QQ")

_ARRIVAL_BYTES = 128

_STEP = 1_000

Run = tuple[int, int, int]
"""First sequence, how many, offset of the first."""


class Window:
    """The last 100,000 sequences of one producer, or up to a sixteenth more: the oldest go in lots,
    so that each costs little."""

    __slots__ = (
        "_arrivals",
        "_count",
        "_firsts",
        "_lengths",
        "_offsets",
        "_sequences_max",
        "last_ms",
    )

    def __init__(self, sequences_max: int | None = None) -> None:
        # The runs, by their first sequence. Lengths, not ends: behind the last u64 is none.
        self._firsts, self._lengths, self._offsets = array("Q"), array("Q"), array("Q")
        self._arrivals: deque[list[int]] = deque()  # [first, behind the last], oldest first
        self._count = 0
        self._sequences_max = SEQUENCES_MAX if sequences_max is None else sequences_max
        self.last_ms = 0
        """When it was added to for the last time."""

    @property
    def size(self) -> int:
        """What it takes, in bytes, about."""
        return PARTED_BYTES + _RUN.size * len(self._firsts) + _ARRIVAL_BYTES * len(self._arrivals)

    def find(self, sequence: int, count: int) -> int | None:
        """The offset that these sequences went to, None if they are new.

        Some but not all of them known is an error: a resend is the same as what was sent first.
        """
        firsts = self._firsts
        at = bisect_right(firsts, sequence) - 1
        if at >= 0 and sequence - firsts[at] < self._lengths[at]:
            into = sequence - firsts[at]
            if into + count <= self._lengths[at]:
                return self._offsets[at] + into
        elif at + 1 == len(firsts) or firsts[at + 1] >= sequence + count:
            return None
        raise overlap(sequence, count)

    def known_from(self, sequence: int) -> int:
        """How many sequences from this one on went to offsets that follow on one another."""
        at = bisect_right(self._firsts, sequence) - 1
        run = (self._firsts[at], self._lengths[at], self._offsets[at])
        return _known_in(run, sequence) if at >= 0 else 0

    def add(self, sequence: int, count: int, offset: int) -> int:
        """Remember new sequences; the oldest arrivals make room. By how much that grows it."""
        firsts, lengths, offsets = self._firsts, self._lengths, self._offsets
        grown = 0
        at = bisect_right(firsts, sequence)
        if (
            at
            and firsts[at - 1] + lengths[at - 1] == sequence
            and offsets[at - 1] + lengths[at - 1] == offset
        ):
            lengths[at - 1] += count
        else:
            firsts.insert(at, sequence)
            lengths.insert(at, count)
            offsets.insert(at, offset)
            grown = _RUN.size
        if self._arrivals and self._arrivals[-1][1] == sequence:
            self._arrivals[-1][1] += count
        else:
            self._arrivals.append([sequence, sequence + count])
            grown += _ARRIVAL_BYTES
        self._count += count
        most = max(self._sequences_max, count)  # all of the last batch, however large it is
        if self._count > most + self._sequences_max // 16:
            before = self.size
            while self._count > most:
                self._forget_oldest(self._count - most)
            grown += self.size - before
        return grown

    def _forget_oldest(self, excess: int) -> None:
        oldest = self._arrivals[0]
        first, behind = oldest[0], min(oldest[1], oldest[0] + excess)
        if behind == oldest[1]:
            self._arrivals.popleft()
        else:
            oldest[0] = behind
        self._count -= behind - first
        firsts, lengths, offsets = self._firsts, self._lengths, self._offsets
        # All of these are in runs that follow on one another; of the outer two, parts may stay.
        low, high = bisect_right(firsts, first) - 1, bisect_right(firsts, behind - 1) - 1
        kept = [(firsts[low], first - firsts[low], offsets[low])]
        end = firsts[high] + lengths[high]
        kept.append((behind, end - behind, offsets[high] + behind - firsts[high]))
        kept = [run for run in kept if run[1]]
        for column, values in enumerate((firsts, lengths, offsets)):
            values[low : high + 1] = array("Q", [run[column] for run in kept])

    def copy(self) -> Window:
        """The same, to be looked at while this one changes."""
        other = Window(self._sequences_max)
        other._firsts, other._lengths = self._firsts[:], self._lengths[:]
        other._offsets = self._offsets[:]
        other._arrivals = deque(arrival[:] for arrival in self._arrivals)
        other._count, other.last_ms = self._count, self.last_ms
        return other

    def runs(self) -> list[Run]:
        return list(zip(self._firsts, self._lengths, self._offsets, strict=True))

    def arrivals(self) -> list[tuple[int, int]]:
        """First sequences, and how many."""
        return [(first, behind - first) for first, behind in self._arrivals]

    @classmethod
    def of(cls, last_ms: int, runs: Iterable[Run], arrivals: Iterable[tuple[int, int]]) -> Window:
        window = cls()
        window.last_ms = last_ms
        for first, length, offset in runs:
            window._firsts.append(first)
            window._lengths.append(length)
            window._offsets.append(offset)
        window._arrivals = deque([first, first + count] for first, count in arrivals)
        window._count = sum(behind - first for first, behind in window._arrivals)
        return window


class _Small:
    """A window whose sequences came one behind the other, as bytes: `last use`, then its runs."""

    @staticmethod
    def last_ms(window: bytes) -> int:
        return int(_TIME.unpack_from(window)[0])

    @staticmethod
    def runs(window: bytes) -> list[Run]:
        return list(_RUN.iter_unpack(memoryview(window)[_TIME.size :]))

    @staticmethod
    def find(window: bytes, sequence: int, count: int) -> int | None:
        for first, length, offset in _Small.runs(window):
            if first <= sequence and sequence + count <= first + length:
                return int(offset + sequence - first)
            if sequence < first + length and first < sequence + count:
                raise overlap(sequence, count)
        return None

    @staticmethod
    def added(window: bytes, now_ms: int, sequence: int, count: int, offset: int) -> bytes | Window:
        """The window with these as well; another kind of one where they do not fit in."""
        at = len(window) - _RUN.size
        first, length, begin = _RUN.unpack_from(window, at)
        if first + length == sequence:
            if begin + length == offset:
                length += count
                if at == _TIME.size:  # of one run, the oldest are its first
                    most = max(SEQUENCES_MAX, count)
                    if length > most + SEQUENCES_MAX // 16:
                        gone = length - most
                        first, length, begin = first + gone, most, begin + gone
                    return _TIME.pack(now_ms) + _RUN.pack(first, length, begin)
                added = window[_TIME.size : at] + _RUN.pack(first, length, begin)
            else:
                added = window[_TIME.size :] + _RUN.pack(sequence, count, offset)
            (lowest,) = _TIME.unpack_from(added)
            if len(added) <= SMALL_RUNS * _RUN.size and (
                sequence + count - lowest <= SEQUENCES_MAX
            ):
                return _TIME.pack(now_ms) + added
        runs = _Small.runs(window)
        lowest = runs[0][0]
        made = Window.of(now_ms, runs, [(lowest, runs[-1][0] + runs[-1][1] - lowest)])
        made.add(sequence, count, offset)
        return made


def overlap(sequence: int, count: int) -> InvalidRequest:
    return InvalidRequest(
        f"sequences {sequence} to {sequence + count - 1} overlap with others in part; "
        "a resend must be the same batch"
    )


class Remembered:
    """What all topics of a broker remember of producers, within limits of age and bytes.

    Whoever was quiet longest is forgotten first, in whichever topic. Time is that of what is
    added: it passes when messages come, and never goes back.
    """

    def __init__(
        self, age_ms: int = round(PRODUCER_SECONDS * 1000), bytes_max: int = PRODUCER_BYTES
    ) -> None:
        self.time_ms = 0
        self.bytes = 0
        self._topics: dict[int, Producers] = {}
        # When the first of a topic was used, or before that: it may have been used since.
        self.fronts: list[tuple[int, int]] = []
        self.on_change: Callable[[int], object] = lambda topic: None
        """Told of topics before somebody is forgotten there."""
        self.set_limits(age_ms, bytes_max)

    def set_limits(self, age_ms: int, bytes_max: int) -> None:
        self.age_ms, self.bytes_max = age_ms, bytes_max
        self.late_ms = age_ms + age_ms // 64
        """Who was quiet so long is forgotten: later than it might be, so that it is rare."""
        self.keep()

    def begin(self, topic: int, producers: Producers) -> None:
        self._topics[topic] = producers

    def enlist(self, topic: int, front_ms: int) -> None:
        heappush(self.fronts, (front_ms, topic))

    def forget(self, topic: int) -> None:
        """The topic is gone."""
        producers = self._topics.pop(topic, None)
        if producers is not None:
            self.bytes -= producers.bytes
            if len(self.fronts) > 2 * len(self._topics) + 64:
                self.fronts = [front for front in self.fronts if front[1] in self._topics]
                heapify(self.fronts)

    def keep(self) -> None:
        """Forget who is beyond the limits; a little more than that at once, so that it is rare."""
        fronts = self.fronts
        while fronts and (
            fronts[0][0] + self.late_ms < self.time_ms or self.bytes > self.bytes_max
        ):
            if self._is_first_known():
                room = self.bytes_max
                if self.bytes > room:
                    room -= room // 64
                self._forget_oldest(self.time_ms - self.age_ms, room)

    def _is_first_known(self) -> bool:
        """Whether the first front is as it says. If not it is made so, and another may be first."""
        last_ms, topic = self.fronts[0]
        producers = self._topics.get(topic)
        front_ms = None if producers is None else producers.front_ms()
        if front_ms is None:
            heappop(self.fronts)
            if producers is not None:
                producers.is_listed = False
            return False
        if front_ms != last_ms:
            heapreplace(self.fronts, (front_ms, topic))
        return front_ms == last_ms

    def _forget_oldest(self, before_ms: int, room: int) -> None:
        """Who was used before that time; and others, until all that is left has room."""
        fronts = self.fronts
        while fronts and (fronts[0][0] < before_ms or self.bytes > room):
            if self._is_first_known():
                _, topic = fronts[0]
                self.on_change(topic)
                after = min(fronts[1:3], default=None)
                self._topics[topic].forget_first(before_ms, self.bytes - room, after)


class Producers:
    """The windows of a topic's producers; who has been quiet longest is the first.

    Short-lived clients are many, and have sent a few runs: their windows are bytes.
    """

    def __init__(self, remembered: Remembered | None = None, topic: int = 0) -> None:
        self._remembered = remembered if remembered is not None else Remembered()
        self._topic = topic
        self._windows: dict[str, bytes | Window] = {}  # whoever publishes goes to the end
        self._large = 0  # how many of them are not bytes
        self.bytes = 0
        self.is_listed = False
        self._remembered.begin(topic, self)

    def __len__(self) -> int:
        return len(self._windows)

    def find(self, producer: str, sequence: int, count: int) -> int | None:
        window = self._windows.get(producer)
        if window is None:
            return None
        if isinstance(window, Window):
            return window.find(sequence, count)
        first, length, _ = _RUN.unpack_from(window, len(window) - _RUN.size)
        if sequence >= first + length:
            return None  # as it is for who counts up
        return _Small.find(window, sequence, count)

    def known_from(self, producer: str, sequence: int) -> int:
        """How many sequences from this one on went to offsets that follow on one another."""
        window = self._windows.get(producer)
        if window is None:
            return 0
        if isinstance(window, Window):
            return window.known_from(sequence)
        return max(_known_in(run, sequence) for run in _Small.runs(window))

    def add(self, producer: str, sequence: int, count: int, offset: int, time_ms: int = 0) -> None:
        remembered, windows = self._remembered, self._windows
        now_ms = remembered.time_ms = max(remembered.time_ms, time_ms)
        window = windows.pop(producer, None)
        if window is None:
            window = _TIME.pack(now_ms) + _RUN.pack(sequence, count, offset)
            self._grow(_size(producer, window))
        elif isinstance(window, Window):
            window.last_ms = now_ms
            self._grow(window.add(sequence, count, offset))
        else:
            small, window = window, _Small.added(window, now_ms, sequence, count, offset)
            if isinstance(window, Window) or len(window) != len(small):
                self._large += isinstance(window, Window)
                self._grow(_size(producer, window) - _size(producer, small))
        windows[producer] = window
        if not self.is_listed:
            self.is_listed = True
            remembered.enlist(self._topic, now_ms)
        if (
            remembered.fronts[0][0] + remembered.late_ms < now_ms
            or remembered.bytes > remembered.bytes_max
        ):
            remembered.keep()

    def _grow(self, size: int) -> None:
        self.bytes += size
        self._remembered.bytes += size

    def front_ms(self) -> int | None:
        """When the one that was quiet longest was used; None where there is none."""
        for window in self._windows.values():
            return _last_ms(window)
        return None

    def forget_first(self, before_ms: int, excess: int, after: tuple[int, int] | None) -> None:
        """Forget from the first on: who was used before that time, and who is in excess (bytes), up
        to those that another topic has older ones than."""
        gone: list[str] = []
        for producer, window in self._windows.items():
            last_ms = _last_ms(window)
            if (last_ms >= before_ms and excess <= 0) or (
                after is not None and (last_ms, self._topic) > after
            ):
                break
            gone.append(producer)
            size = _size(producer, window)
            excess -= size
            self._large -= isinstance(window, Window)
            self._grow(-size)
        for producer in gone:
            del self._windows[producer]

    def clear(self) -> None:
        """Forget all of them."""
        self._grow(-self.bytes)
        self._windows = {}
        self._large = 0

    def forget(self) -> None:
        """The topic is gone."""
        self._remembered.forget(self._topic)

    def snapshot(self) -> ProducerSnapshot:
        """All of it, as it is now; `encoded` may be had from another thread."""
        names, windows = list(self._windows), list(self._windows.values())
        if self._large:
            windows = [one if isinstance(one, bytes) else one.copy() for one in windows]
        return ProducerSnapshot(names, windows)

    def restoring(self, stored: bytes) -> Iterator[None]:
        """Take up what was stored, in steps."""
        view, at = memoryview(stored), 0
        while at < len(stored):
            runs, arrivals, length = _HEAD.unpack_from(stored, at)
            at += _HEAD.size
            name = str(view[at : at + length], "utf-8")
            at += length
            behind = at + _TIME.size + runs * _RUN.size
            small = bytes(view[at:behind])
            end = behind + arrivals * _ARRIVAL.size
            came = list(_ARRIVAL.iter_unpack(view[behind:end]))
            self._restore(name, _opened(small, came) if came else small)
            at = end
            if len(self._windows) % _STEP == 0:
                yield
        yield

    def restore_older(self, stored: list[tuple[str, list[Any]]], last_ms: int) -> None:
        """The same from a manifest of an earlier version, which has no times."""
        for name, (runs, arrivals) in stored:  # as decoded: lists, not tuples
            found = [(first, length, offset) for first, length, offset in runs]
            came = [(first, length) for first, length in arrivals]
            self._restore(name, Window.of(last_ms, found, came))

    def _restore(self, name: str, window: bytes | Window) -> None:
        last_ms = _last_ms(window)
        self._windows[name] = window
        self._large += isinstance(window, Window)
        self._grow(_size(name, window))
        self._remembered.time_ms = max(self._remembered.time_ms, last_ms)
        if not self.is_listed:
            self.is_listed = True
            self._remembered.enlist(self._topic, last_ms)


class ProducerSnapshot(NamedTuple):
    """The windows of a topic at one moment."""

    names: list[str]
    windows: list[bytes | Window]

    def encoded(self) -> bytes:
        parts: list[bytes] = []
        for producer, window in zip(self.names, self.windows, strict=True):
            name = producer.encode()
            if isinstance(window, bytes):
                runs = (len(window) - _TIME.size) // _RUN.size
                parts += (_HEAD.pack(runs, 0, len(name)), name, window)
            else:
                found, came = window.runs(), window.arrivals()
                parts += (_HEAD.pack(len(found), len(came), len(name)), name)
                parts.append(_TIME.pack(window.last_ms))
                parts += [_RUN.pack(*run) for run in found]
                parts += [_ARRIVAL.pack(*arrival) for arrival in came]
        return b"".join(parts)


def _opened(window: bytes, arrivals: list[Any]) -> Window:
    return Window.of(_Small.last_ms(window), _Small.runs(window), arrivals)


def _known_in(run: Run, sequence: int) -> int:
    first, length, _ = run
    return first + length - sequence if first <= sequence < first + length else 0


def _last_ms(window: bytes | Window) -> int:
    return _Small.last_ms(window) if isinstance(window, bytes) else window.last_ms


def _size(producer: str, window: bytes | Window) -> int:
    size = len(window) - _TIME.size - _RUN.size if isinstance(window, bytes) else window.size
    return WINDOW_BYTES + len(producer) + size
