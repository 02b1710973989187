"""What clients hold of one queue group: lease ids, and what they stand for.

HermesMQ numbers every delivery; the engine has a token for a grant of many, and offsets. Ids are
the server's, not a connection's: a client may poll by one and ack by another. An id of what another
process handed out is found by what it is made of (`lease_ids`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from ...batch import PRIORITY
from ...broker_api import KnowsLeases, MemberApi, Paced
from ...errors import FlintError, GroupNotFound, LeaseLost, NotLeader, OutcomeUnknown
from ...net.server.leases_by_id import LeasedTogether, LeasesById, leases_of
from ...observe.logs import limited
from ...rows import Rows
from . import codec as hermes
from . import rules
from .lease_ids import LeaseIds

_log = logging.getLogger(__name__)


class Owner(Protocol):
    """Who got messages: a connection that polled, or a subscription."""

    def resolved(self, hold: Hold, offset: int) -> None:
        """It was acked or nacked, or is lost."""
        ...


class Item(NamedTuple):
    """A message as it is told, but for its lease id."""

    priority: int
    offset: int
    content_type: int
    payload: bytes
    ts_ms: int

    def encoded(self, lease_id: int) -> bytes:
        return hermes.delivered(
            hermes.Delivered(
                lease_id, self.offset, self.priority, self.content_type, self.payload, self.ts_ms
            )
        )


class Hold:
    """A membership that is shared by all who poll a group, and everything that is out of it."""

    def __init__(
        self,
        topic: str,
        group: str,
        ids: LeaseIds,
        member: MemberApi,
        failed: Callable[[BaseException], bytes] = rules.failed,
    ) -> None:
        self.topic, self.group, self.member = topic, group, member
        self._failed = failed
        self.ids = ids
        self.users = 0
        """Polls and subscriptions at work."""
        self.is_ended = False
        self.fitting = rules.POLL_MAX
        """How many messages a poll takes at most: about what a reply has room for."""
        self.out = LeasesById[Owner](
            gone=lambda offset, handed: handed.owner.resolved(self, offset)
        )
        """What clients have of the group."""
        self._acks: list[tuple[int, int]] = []
        self._nacks: list[tuple[int, int]] = []
        """Tokens and offsets."""
        self._settled: asyncio.Future[bytes] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def is_idle(self) -> bool:
        return not (self.users or self.out or self._tasks or self._settled)

    def seconds_limited(self) -> float:
        """How long the rate limit keeps back what is there; 0 if it does not."""
        member = self.member
        seconds = member.seconds_until_token() if isinstance(member, Paced) else 0.0
        return seconds if seconds and member.is_ready() else 0.0

    # --- handing out

    def adapt(self, items: Sequence[Item], bytes_max: int) -> None:
        """Take no more at once than can be told: of large messages it would only be given back."""
        size = sum(len(item.payload) for item in items)
        if items and size:
            fitting = 2 * bytes_max * len(items) // size
            self.fitting = max(1, min(rules.POLL_MAX, fitting))

    def deliver(
        self, token: int, items: Sequence[Item], owner: Owner, forgotten_at: float
    ) -> list[bytes]:
        """Note who has these until nobody can be waiting for them, and encode each with its id."""
        self.out.note([item.offset for item in items], LeasedTogether(token, owner, forgotten_at))
        encoded = []
        for item in items:
            number = self.ids.of(token, item.offset)
            self.out.name(item.offset, number)
            encoded.append(item.encoded(number))
        return encoded

    def end(self) -> None:
        """The group is gone."""
        self.is_ended = True
        self.out.forget_all()

    # --- settling

    def ack(self, lease_id: int) -> asyncio.Future[bytes] | bytes:
        """The reply, once it is safe. What is not out any more is Ok all the same: their protocol
        has no other word."""
        return self._settle(self._named(lease_id), self._acks)

    def nack(self, lease_id: int) -> asyncio.Future[bytes] | bytes:
        return self._settle(self._named(lease_id), self._nacks)

    def _named(self, lease_id: int) -> tuple[int, int] | None:
        """Token and offset of what is out by that id."""
        offset = self.out.named(lease_id)
        if offset is not None:
            handed = self.out.forget(offset)
            return None if handed is None else (handed.token, offset)
        if not self.ids.has_learned and isinstance(self.member, KnowsLeases):
            self.ids.learn(self.member.standing())
        return self.ids.find(lease_id)

    def _settle(
        self, held: tuple[int, int] | None, gathered: list[tuple[int, int]]
    ) -> asyncio.Future[bytes] | bytes:
        if held is None:
            return hermes.OK
        gathered.append(held)
        if self._settled is None:
            loop = asyncio.get_running_loop()
            self._settled = loop.create_future()
            loop.call_soon(self._carry_out)
        return self._settled

    def give_back(self, offset: int, owner: Owner) -> None:
        """Its owner is gone: the next one gets it, unless somebody has it by now."""
        handed = self.out.find(offset)
        if handed is not None and handed.owner is owner:
            self.out.forget(offset)
            self._settle((handed.token, offset), self._nacks)

    def _carry_out(self) -> None:
        """What was settled in one turn of the loop goes to the journal in one piece."""
        settled, self._settled = self._settled, None
        acks, self._acks = self._acks, []
        nacks, self._nacks = self._nacks, []
        assert settled is not None
        self.run(self._tell(settled, acks, nacks))

    async def _tell(
        self,
        settled: asyncio.Future[bytes],
        acks: list[tuple[int, int]],
        nacks: list[tuple[int, int]],
    ) -> None:
        reply = hermes.OK
        try:
            if acks:
                await _unless_lost(self.member.ack(leases_of(acks)))
            if nacks:
                await _unless_lost(self.member.nack(leases_of(nacks), 0.0))
        except GroupNotFound:
            pass  # an operator has deleted it: nothing is out any more
        except FlintError as error:
            if not self.is_ended or isinstance(error, NotLeader | OutcomeUnknown):
                reply = self._failed(error)
        except Exception as error:
            limited(
                _log,
                logging.ERROR,
                "hermes_settle_failed",
                type(error).__name__,
                "settling messages failed because of an internal error; please report it",
                exc_info=error,
            )
            reply = rules.failed(error)
        finally:
            if not settled.done():
                settled.set_result(reply)

    def run(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        self.end()
        if self._settled is not None:
            await self._settled
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.member.close()


async def _unless_lost(settling: Any) -> None:
    """What is lost cannot be told to them; the others are settled."""
    with contextlib.suppress(LeaseLost):
        await settling


def items_of(rows: Rows) -> list[Item]:
    """The messages, highest priority first, the oldest of each first."""
    items: list[Item] = []
    is_sorted = True
    for run in rows.runs:
        source, base, picks = run.source, run.source.base_offset, run.rows()
        has_priority = source.columns & PRIORITY
        common = source.common_content_type()
        number = 0 if common is None else rules.content_number(common)
        is_sorted = is_sorted and not has_priority
        values = source.values(run.start, run.stop) if run.picks is None else None
        for at, row in enumerate(picks):
            items.append(
                Item(
                    source.priority(row) if has_priority else 0,
                    base + row,
                    rules.content_number(source.content_type(row)) if common is None else number,
                    bytes(source.value(row) if values is None else values[at]),
                    source.time(row),
                )
            )
    if not is_sorted or len(rows.runs) > 1:
        items.sort(key=_rank)
    return items


def _rank(item: Item) -> tuple[int, int]:
    return -item.priority, item.offset
