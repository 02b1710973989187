"""Settling that nobody waits for: gathered, bounded, in order, and told of where it fails.

What is settled within one turn of the event loop goes to the broker in one call for each group;
while that is under way, more gathers behind it. So a consumer is never slower than its acks, and
the broker syncs once for many. What has not reached the broker when the process dies is delivered
again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass, field
from functools import partial
from types import coroutine
from typing import Any, NamedTuple

from ..broker_api import MemberApi
from ..errors import LeaseLost
from ..group_model import Ranges
from ..groups.ranges import append_range, ascending, extend_ranges, offsets_in
from ..observe.logs import event
from .callbacks import Callbacks
from .grips import Fate, Grip, How, log

PENDING_MAX = 4096
"""How many messages may be on their way to being settled: then nothing more is taken."""

FLUSH_SECONDS = 5.0
"""How long closing waits for the broker to answer for them."""


class NotSettled(NamedTuple):
    """Messages that could not be settled in the background. They may be delivered again."""

    topic: str
    group: str
    offsets: list[int]
    how: Fate
    """'ack', 'nack', 'reject' or 'release'."""
    error: Exception
    """LeaseLost: others have them. Else it is not known what the broker did."""


OnNotSettled = Callable[[NotSettled], Awaitable[object] | object]


class _SettledAlike(NamedTuple):
    """What can go to a member in one call."""

    how: How
    ranges: dict[Grip, Ranges]


@dataclass(slots=True)
class _SettleLine:
    """What one member has to be told, in order."""

    member: MemberApi
    gathered: deque[_SettledAlike] = field(default_factory=deque)
    flying: int = 0
    is_due: bool = False


class BackgroundSettler:
    """Of one client. `pending` messages are on their way, `failed` were not settled so far."""

    def __init__(self) -> None:
        self.pending = self.failed = 0
        self.on_failed: Callbacks[OnNotSettled] = Callbacks()
        self._lines: dict[MemberApi, _SettleLine] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._held_back: dict[Callable[[], object], None] = {}

    def settle(self, grip: Grip, ranges: Ranges, count: int, how: How) -> None:
        member = grip.member
        line = self._lines.get(member)
        if line is None:
            line = self._lines[member] = _SettleLine(member)
        if line.gathered and line.gathered[-1].how == how:
            extend_ranges(line.gathered[-1].ranges.setdefault(grip, []), ranges)
        else:
            line.gathered.append(_SettledAlike(how, {grip: list(ranges)}))
        self.pending += count
        if member.is_instant:
            self._send(line)
        elif not line.is_due and not line.flying:
            line.is_due = True
            asyncio.get_running_loop().call_soon(self._send, line)

    # --- waiting

    @property
    def is_full(self) -> bool:
        return self.pending >= PENDING_MAX

    def push(self) -> None:
        """Send what is gathered now: whatever is asked of the broker next comes behind it."""
        for line in list(self._lines.values()):
            if line.gathered:
                self._send(line)

    async def room(self) -> None:
        """Wait until the broker has answered for enough of them."""
        while self.is_full:
            self.push()
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)

    def when_room(self, callback: Callable[[], object]) -> None:
        """Call back once when there is room again."""
        self._held_back[callback] = None

    async def flush(self, timeout: float | None = None) -> None:
        """Send what is gathered, and wait until the broker has answered for all of it."""
        self.push()
        if self._tasks:
            await asyncio.wait(self._tasks.copy(), timeout=timeout)

    # --- sending

    def _send(self, line: _SettleLine) -> None:
        line.is_due = False
        while line.gathered:
            alike = line.gathered.popleft()
            line.flying += 1
            rest = _begun(self._settle(line, alike))
            if rest is not None:
                task = asyncio.get_running_loop().create_task(rest)
                self._tasks.add(task)
                task.add_done_callback(partial(self._ended, line))

    def _ended(self, line: _SettleLine, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if line.gathered and not line.flying and not task.cancelled():
            self._send(line)

    async def _settle(self, line: _SettleLine, alike: _SettledAlike) -> None:
        how = alike.how
        leases = [(grip.token, ascending(ranges)) for grip, ranges in alike.ranges.items()]
        try:
            await how.tell(line.member, leases)
        except LeaseLost as error:
            self._failed(alike, error, set(error.offsets))
        except Exception as error:
            self._failed(alike, error, None)
        finally:
            self.pending -= sum(stop - start for _, ranges in leases for start, stop in ranges)
            line.flying -= 1
            if not line.flying and not line.gathered:
                self._lines.pop(line.member, None)
            if self._held_back and not self.is_full:
                held_back, self._held_back = self._held_back, {}
                for callback in held_back:
                    callback()

    def _failed(self, alike: _SettledAlike, error: Exception, lost: set[int] | None) -> None:
        all_failed: Ranges = []
        for failed, ranges in alike.ranges.items():
            failed.failed(ascending(ranges), lost)
            for start, stop in ranges:
                append_range(all_failed, start, stop)
        offsets = [o for o in offsets_in(all_failed) if lost is None or o in lost]
        grip = next(iter(alike.ranges))
        topic, group = grip.topic, grip.group
        self.failed += len(offsets)
        event(
            log,
            logging.WARNING,
            "not_settled",
            f"{topic} offset {', '.join(map(str, offsets[:8]))}{', ...' * (len(offsets) > 8)} "
            f"was not settled: {error}",
            topic=topic,
            group=group,
            first_offset=offsets[0] if offsets else 0,
            count=len(offsets),
            how=alike.how.fate,
        )
        self.on_failed.tell(NotSettled(topic, group, offsets, alike.how.fate, error))


def _begun(work: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None] | None:
    """Make the first step at once: what need not wait is done then. The rest, if there is one."""
    try:
        awaited = work.send(None)
    except StopIteration:
        return None
    return _rest_of_work(work, awaited)


@coroutine
def _rest(work: Coroutine[Any, Any, None], awaited: Any) -> Generator[Any, Any, None]:
    try:
        while True:
            try:
                sent = yield awaited
            except GeneratorExit:
                work.close()
                raise
            except BaseException as error:
                awaited = work.throw(error)
            else:
                awaited = work.send(sent)
    except StopIteration:
        return


async def _rest_of_work(work: Coroutine[Any, Any, None], awaited: Any) -> None:
    await _rest(work, awaited)
